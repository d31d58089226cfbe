"""What a source tells of draft acceptance: counts of each engine over one span, and their course over time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dspark_cli.facts.draft_context import ServerContext
from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.traffic import NO_TRAFFIC, UNKNOWN_TRAFFIC, Traffic


class SourceKind(StrEnum):
    METRICS = "metrics"
    PROMETHEUS = "prometheus"
    LOG = "log"
    BENCHMARK = "benchmark"
    EXAMPLE = "example"
    PROBE = "probe"


@dataclass(frozen=True)
class EnginePart:
    """One engine of one server over the span. `where` is the server's URL or the file's name."""

    where: str
    model: str
    engine: str
    counted: DraftCounters
    traffic: Traffic = UNKNOWN_TRAFFIC
    restarted: bool = False
    """Its counters began anew in the span; what it counted from the last look before that to the restart is lost."""

    @property
    def name(self) -> str:
        return engine_name(self.model, self.engine)


@dataclass(frozen=True)
class TrendPoint:
    """What was counted in one stretch of the span, all engines together; `at` is its end (seconds since 1970)."""

    at: float | None
    seconds: float | None
    counted: DraftCounters
    traffic: Traffic = UNKNOWN_TRAFFIC


@dataclass(frozen=True)
class Recording:
    """Counts over one span. `seconds` is its length, None for "since server start" or where nothing tells."""

    source: SourceKind
    where: tuple[str, ...]
    seconds: float | None
    parts: tuple[EnginePart, ...]
    trend: tuple[TrendPoint, ...] = ()
    since_start: tuple[EnginePart, ...] = ()
    """The same engines since their start, where `parts` is of a window."""
    speculates: bool = True
    """Whether there is a drafter at all."""
    exact: bool = True
    """Whether the counts are the engine's own, not worked out from rounded rates."""
    notes: tuple[str, ...] = ()
    """What is left out, and why."""
    draft_contexts: tuple[ServerContext, ...] = ()
    """Of the servers that tell theirs, over the same span."""

    @property
    def counted(self) -> DraftCounters:
        return counted_in(self.parts)

    @property
    def traffic(self) -> Traffic:
        return traffic_in(self.parts)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted({part.model for part in self.parts}))


def engine_name(model: str, engine: str) -> str:
    return f"{model or 'unnamed model'} engine {engine}"


def traffic_in(parts: Sequence[EnginePart]) -> Traffic:
    """The traffic of all `parts` together; unknown of none."""
    return sum((part.traffic for part in parts), NO_TRAFFIC) if parts else UNKNOWN_TRAFFIC


def counted_in(parts: Iterable[EnginePart]) -> DraftCounters:
    """The counts of all `parts` together."""
    return sum((part.counted for part in parts), NOTHING)
