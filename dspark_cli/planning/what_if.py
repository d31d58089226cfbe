"""Changes to a deployment, to be planned beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dspark_cli.errors import BadInput
from dspark_cli.planning.deployment import Deployment
from dspark_cli.sources.cache_planner import EVERY, Scenario

USUAL = ("no-drafter", "layout", "group-width", "block-size=16", "block-size=32", "block-size=64")
"""What `--what-if all` compares."""


def what_if_scenarios(base: Deployment, changes: Sequence[str]) -> list[Scenario]:
    """One scenario a change; `layout` and `group-width` without a value stand for every one there is.

    A change is `no-drafter`, `layout[=NAME]`, `group-width[=LAYERS]`, `draft.KEY=VALUE` for a key of the speculative
    configuration, or `OPTION=VALUE` for any option of `vllm serve`. Changes joined by commas are made together.

    Raises:
        BadInput: not such a change.
    """
    return [_changed(base, change).scenario(change) for change in _spelled_out(base, changes)]


def _spelled_out(base: Deployment, changes: Sequence[str]) -> Iterator[str]:
    for change in changes:
        for one in USUAL if change == "all" else (change,):
            if not (change == "all" and one == "no-drafter" and base.speculative_config is None):
                yield one


def _changed(base: Deployment, changes: str) -> Deployment:
    changed = base
    for change in changes.split(","):
        changed = _one_change(changed, *change.strip().partition("=")[::2])
    return changed


def _one_change(base: Deployment, name: str, value: str) -> Deployment:
    match name:
        case "no-drafter":
            if not value:
                return base.without_drafter()
        case "layout":
            return replace(base, layout=value or EVERY)
        case "group-width":
            return replace(base, group_width=_layers(value) if value else EVERY)
        case _ if name.startswith("draft.") and value:
            return base.with_speculation(**{name.removeprefix("draft."): _plain(value)})
        case _ if value and name.replace("-", "").replace("_", "").isalnum():
            return base.with_args(f"--{name.lstrip('-')}", value)
    raise BadInput(
        f"--what-if {name!r} is no change",
        "give no-drafter, layout, group-width, draft.KEY=VALUE or OPTION=VALUE of vllm serve, such as block-size=32",
    )


def _layers(value: str) -> int:
    if not value.isdecimal() or int(value) == 0:
        raise BadInput(f"--what-if group-width={value} is no number of layers", "give one like group-width=4")
    return int(value)


def _plain(value: str) -> str | int | bool:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() else value
