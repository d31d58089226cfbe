"""Whether the one more setting is one that this vLLM has: every server of a key that it does not know would die."""

from dspark_cli.errors import BadInput
from dspark_cli.patches.found_vllm import FoundVllm
from dspark_cli.patches.patch import Symbol
from dspark_cli.patches.source_tree import UnreadableSource
from dspark_cli.tuning.candidates import Also

FILE, CLASS = "config/speculative.py", "SpeculativeConfig"


def require_known_key(also: Also | None, found: FoundVllm) -> None:
    """Raises BadInput: `also` is a key, and this vLLM's speculative configuration has none of that name. Where its
    source cannot be read, vLLM itself judges."""
    if also is None or also.is_option:
        return
    try:
        if found.tree.text(Symbol(FILE, CLASS)) is None or found.tree.text(Symbol(FILE, f"{CLASS}.{also.key}")):
            return
    except UnreadableSource:
        return
    option = f"--{also.key.replace('_', '-')}={','.join(also.values)}"
    raise BadInput(
        f"the speculative configuration of vLLM {found.version} has no key {also.key}",
        f"if it is an option of vllm serve, give it with its dashes: --also {option}",
    )
