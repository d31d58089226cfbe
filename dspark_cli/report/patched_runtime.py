"""What a start adds to vLLM, in words."""

from dspark_cli.draft_context.policy import ALL, Policy
from dspark_cli.patches.registry import PATCHES
from dspark_cli.serving.patched_runtime import PatchedRuntime

SEEN = {
    Policy.VALIDITY: "of restored tokens the drafter sees those behind the last one whose row it did not write itself",
    Policy.RESTORED: "of restored tokens the drafter sees no whole block",
    Policy.OFF: "the drafter sees all restored tokens, whatever their rows hold",
}


def runtime_in_words(runtime: PatchedRuntime) -> list[str]:
    """The draft context, then a line a patch, then what is left out; one line where vLLM stays as it is."""
    left_out = [f"left out: {', '.join(runtime.without)}"] if runtime.without else []
    if runtime.draft_context is Policy.OFF and not runtime.patches:
        return ["plain vLLM: nothing of it is patched", *([] if ALL in runtime.without else left_out)]
    titles = {patch.name: patch.title for patch in PATCHES}
    by = f" ({_context_patches(runtime)})" if runtime.context_patches else ""
    return [
        f"draft context {runtime.draft_context}{by}: {SEEN[runtime.draft_context]}",
        *(f"patch {name}: {titles.get(name, 'not in this registry')}" for name in runtime.patches),
        *left_out,
    ]


def runtime_in_a_line(runtime: PatchedRuntime) -> str:
    """The same by name only."""
    policy = runtime.draft_context
    context = [] if policy is Policy.OFF else [f"draft context {policy} ({_context_patches(runtime)})"]
    return ", ".join([*context, *runtime.patches]) or "nothing"


def _context_patches(runtime: PatchedRuntime) -> str:
    chosen = ", as vLLM chooses its model runner" if len(runtime.context_patches) > 1 else ""
    return " or ".join(runtime.context_patches) + chosen
