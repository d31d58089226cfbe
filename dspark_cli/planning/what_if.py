"""Changes to a deployment, to be planned beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dspark_cli.errors import BadInput
from dspark_cli.planning.deployment import Deployment
from dspark_cli.sources.cache_planner import GROUP_WIDTH, LAYOUT, Scenario

USUAL_OPTIONS = ("block-size=32", "block-size=64", "max-num-batched-tokens=2048", "kv-cache-dtype=fp8")
"""What `--what-if all` compares beside drafter, layout and group width."""
OWN_NAMES = {
    "tokens": "draft.num_speculative_tokens",
    "draft-kv-dtype": "draft.kv_cache_dtype",
    "kv-memory": "kv-cache-memory-bytes",
}
"""Options of this tool -> what they set."""
NOT_COMPARED = ("gpu", "platform", "draft", "method", "model", "speculative-config", "spec-tokens", "spec-model")
LONGEST_NUMBER = 18


def what_if_scenarios(base: Deployment, changes: Sequence[str]) -> list[Scenario]:
    """One scenario a change; `layout` and `group-width` without a value stand for every one there is.

    A change is `no-drafter`, `layout[=NAME]`, `group-width[=LAYERS]`, `draft.KEY=VALUE` for a key of the speculative
    configuration, or an option of `vllm serve` by its full name, `OPTION=VALUE` (true and false for a switch). Changes
    joined by commas are made together.

    Raises:
        BadInput: not such a change.
    """
    return [_changed(base, change).scenario(change) for change in _spelled_out(base, changes)]


def _spelled_out(base: Deployment, changes: Sequence[str]) -> Iterator[str]:
    for change in changes:
        if change != "all":
            yield change
            continue
        if base.speculative_config is not None:
            tokens = base.speculative_config.get("num_speculative_tokens")
            half = max(1, tokens // 2) if isinstance(tokens, int) else 1
            yield from ("no-drafter", f"draft.num_speculative_tokens={half}")
        yield from (LAYOUT, GROUP_WIDTH, *USUAL_OPTIONS)


def _changed(base: Deployment, changes: str) -> Deployment:
    changed = base
    for change in changes.split(","):
        name, _, value = change.strip().partition("=")
        changed = _one_change(changed, OWN_NAMES.get(name, name), value)
    return changed


def _one_change(base: Deployment, name: str, value: str) -> Deployment:
    match name:
        case "no-drafter" if not value:
            return base.without_drafter()
        case "layout":
            return base.with_layout(value) if value else replace(base, every=(*base.every, LAYOUT))
        case "group-width" if value:
            return replace(base, group_width=_layers(value))
        case "group-width":
            return replace(base, every=(*base.every, GROUP_WIDTH))
        case _ if name.startswith("draft.") and value:
            return base.with_speculation({name.removeprefix("draft."): _plain(value)})
        case _ if name not in ("", "no-drafter", *NOT_COMPARED) and name.replace("-", "").replace("_", "").isalnum():
            return _with_option(base, f"--{name.strip('-').replace('_', '-')}", value)
    raise BadInput(
        f"--what-if {'='.join(filter(None, (name, value)))!r} is no change",
        "give no-drafter, layout, group-width, draft.KEY=VALUE or OPTION=VALUE of vllm serve, such as block-size=32",
    )


def _with_option(base: Deployment, option: str, value: str) -> Deployment:
    """A switch is given by its name, or by true and false."""
    words: tuple[str, ...]
    if value in ("", "true"):
        words = (option,)
    elif value == "false":
        words = (f"--no-{option.removeprefix('--')}",)
    else:
        words = (option, value)
    return replace(base.with_args(*words), exact_options=(*base.exact_options, words[0]))


def _layers(value: str) -> int:
    if not value.isdecimal() or len(value) > LONGEST_NUMBER or int(value) == 0:
        raise BadInput(f"--what-if group-width={value[:40]} is no number of layers", "give one like group-width=4")
    return int(value)


def _plain(value: str) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() and len(value) <= LONGEST_NUMBER else value
