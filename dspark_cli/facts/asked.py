"""What a start asks of a server, as far as the server can confirm it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from dspark_cli.facts import start_verification as names
from dspark_cli.facts.engine_configuration import Setting

OFF = "off"
ALL_ON = "all"
ENGINE_CORE = "engine core"
SPECULATIVE_NAMES = {
    "method": names.METHOD,
    "model": names.DRAFTER,
    "num_speculative_tokens": names.TOKENS,
    "num_speculative_tokens_per_batch_size": names.SCHEDULE,
    "attention_backend": names.DRAFT_BACKEND,
}
"""Of keys that have a word; the others go by their own."""


@dataclass(frozen=True)
class Asked:
    """`settings` by name, see `start_verification`; beside them `draft_context`, a policy, and `patches`: by model
    runner (V1, V2) those that every worker with it is to have, and under `ENGINE_CORE` those of the engine cores.
    `all_on_this_host`: whether this server's log has what every worker says."""

    settings: dict[str, Setting]
    draft_context: str = OFF
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    all_on_this_host: bool = True

    @property
    def everything(self) -> dict[str, Setting]:
        """All settings by name, with those of the patched runtime."""
        of_runtime: dict[str, Setting] = {names.DRAFT_CONTEXT: self.draft_context}
        if any(self.patches.values()):
            of_runtime[names.PATCHES] = ALL_ON
        return {**self.settings, **of_runtime}


def speculative_settings(config: Mapping[str, Any]) -> dict[str, Setting]:
    """The settings that a speculative configuration asks for; those that have no plain value are left out."""
    settings = {SPECULATIVE_NAMES.get(key, key): plain(value) for key, value in config.items() if is_plain(value)}
    if settings.get(names.DRAFT_BACKEND) in ("auto", "AUTO", None):
        settings.pop(names.DRAFT_BACKEND, None)
    model = settings.get(names.DRAFTER)
    if isinstance(model, str) and "://" in model:
        del settings[names.DRAFTER]  # vLLM fetches it, and goes by the folder then
    return settings


def is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(is_plain(held) for held in value)
    return value is None or isinstance(value, bool | int | float | str)


def plain(value: Any) -> Setting:
    """`value` with tuples for lists, so that a schedule of JSON equals one of Python."""
    return cast(Setting, tuple(plain(held) for held in value) if isinstance(value, list | tuple) else value)
