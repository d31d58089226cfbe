"""Whether a server runs as it was asked to: what was asked, what it says, and the verdict, setting by setting."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dspark_cli.facts.engine_configuration import Setting

TOKENS = "draft tokens"
METHOD = "method"
DRAFTER = "drafter"
SCHEDULE = "draft token schedule"
DRAFT_BACKEND = "draft attention backend"
DRAFT_CONTEXT = "draft context"
PATCHES = "patches"
DRAFT_LAYERS = "draft layers in the KV cache"
PREFIX_CACHING = "prefix caching"
BLOCK_TOKENS = "block size"
MODEL_LEN = "max model length"
DRAFTER_LEN = "drafter's max model length"
BATCHED_TOKENS = "max batched tokens"
SEQUENCES = "max sequences"

NEXT_STEPS = {
    METHOD: "see its log for what vLLM made of the speculative configuration",
    SCHEDULE: "vLLM drops a schedule under data parallelism: leave it out, or serve each replica by itself",
    DRAFT_CONTEXT: "what a worker lacks is in its log and in dspark-tool doctor --url URL",
    PATCHES: "what a worker lacks is in its log and in dspark-tool doctor --url URL",
    DRAFT_LAYERS: "see the groups: dspark-tool inspect-cache --url URL",
    PREFIX_CACHING: "its log says why vLLM turned it off; to ask for no more than that: --no-enable-prefix-caching",
    DRAFTER_LEN: "longer requests get no drafts: lower --max-model-len, or take a drafter trained for the length",
}
IMPLIED = frozenset({DRAFTER_LEN})
"""Asked for by nobody in words, and not worth a word where no source speaks of it."""
COVERED = "that of the target"
THERE, MISSING = "there", "missing"
SEE_LOG = "its log says why"
ASK_PLUGIN = "start with --status"


class Outcome(StrEnum):
    SAME = "same"
    DIFFERS = "differs"
    NOT_CONFIRMED = "not confirmed"


class Source(StrEnum):
    """Who says so, the most exact first."""

    STATUS = "/dspark/status"
    METRICS = "/metrics"
    LOG = "the log"


@dataclass(frozen=True)
class Said:
    """What `who`, an engine or one of its workers, has for a setting."""

    setting: str
    value: Setting
    who: str
    source: Source


@dataclass(frozen=True)
class Verified:
    """One setting: what was asked for, what the server has, in words."""

    setting: str
    asked: str
    got: str | None
    outcome: Outcome
    source: Source | None
    next_step: str | None = None


@dataclass(frozen=True)
class Verification:
    """`where` was asked; without it, or where it did not answer, `unasked` says why."""

    where: str | None
    settings: tuple[Verified, ...]
    unasked: str | None = None

    @property
    def differing(self) -> tuple[Verified, ...]:
        return tuple(each for each in self.settings if each.outcome is Outcome.DIFFERS)

    @property
    def not_confirmed(self) -> tuple[Verified, ...]:
        return tuple(each for each in self.settings if each.outcome is Outcome.NOT_CONFIRMED)


def verified(asked: Mapping[str, Setting], said: Iterable[Said], how_to_confirm: str) -> Iterator[Verified]:
    """The verdict on each setting of `asked`, by the most exact source that speaks of it."""
    by_setting: dict[str, list[Said]] = {}
    for each in said:
        by_setting.setdefault(each.setting, []).append(each)
    for setting, value in asked.items():
        if setting in by_setting or setting not in IMPLIED:
            yield _verdict(setting, value, by_setting.get(setting, []), how_to_confirm)


def _verdict(setting: str, asked: Setting, said: Sequence[Said], how_to_confirm: str) -> Verified:
    source = next((source for source in Source if any(each.source is source for each in said)), None)
    if source is None:
        return Verified(setting, words(asked), None, Outcome.NOT_CONFIRMED, None, how_to_confirm)
    said = [each for each in said if each.source is source]
    if all(_equal(asked, each.value) for each in said):
        return Verified(setting, words(asked), words(said[0].value), Outcome.SAME, source)
    next_step = NEXT_STEPS.get(setting, SEE_LOG)
    return Verified(setting, words(asked), _differing(said), Outcome.DIFFERS, source, next_step)


def _equal(asked: Setting, got: Setting) -> bool:
    if isinstance(asked, str) and isinstance(got, str):
        return asked.casefold() == got.casefold()
    return asked == got and isinstance(asked, bool) == isinstance(got, bool)


def _differing(said: Sequence[Said]) -> str:
    """One value where all have it, else who has which."""
    who_by_value: dict[str, list[str]] = {}
    for each in said:
        who_by_value.setdefault(words(each.value), []).append(each.who)
    if len(who_by_value) == 1:
        return next(iter(who_by_value))
    return "; ".join(f"{_shortened(who)}: {value}" for value, who in who_by_value.items())


def _shortened(names: Sequence[str], most: int = 4) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")


def words(value: Setting) -> str:
    """A setting as a user reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return "[" + ", ".join(words(held) for held in value) + "]"
    return str(value)
