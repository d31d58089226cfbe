"""From samples of an engine's counters over time to what it counted: differences, restarts, gaps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count, pairwise

from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.recording import EnginePart, TrendPoint, engine_name
from dspark_cli.facts.traffic import NO_TRAFFIC, Traffic
from dspark_cli.facts.trend import Trend

Values = dict[float, int]
"""One counter: its value by time (seconds since 1970)."""


@dataclass
class EngineSamples:
    """The counters of one engine as they were sampled; not every counter need have a value at every time."""

    where: str
    model: str
    engine: str
    drafts: Values = field(default_factory=dict)
    draft_tokens: Values = field(default_factory=dict)
    accepted: Values = field(default_factory=dict)
    accepted_at: dict[int, Values] = field(default_factory=dict)
    born: dict[float, float] = field(default_factory=dict)
    """When the counters were created, by time, where the server says it."""
    traffic: dict[str, list[Values]] = field(default_factory=dict)
    """By field of Traffic, the counters that it sums."""

    @property
    def name(self) -> str:
        return f"{engine_name(self.model, self.engine)} at {self.where}"


@dataclass(frozen=True)
class Moment:
    """All counters of one engine at one time."""

    at: float
    counted: DraftCounters
    traffic: Traffic


@dataclass(frozen=True)
class History:
    """What one engine counted, stretch by stretch, and its counters at the end. No stretches: too few samples."""

    samples: EngineSamples
    stretches: tuple[TrendPoint, ...]
    last: Moment | None
    restarts: int
    dropped: int
    """Times that were left out because counters were missing there or did not fit the others."""
    silent_s: float
    """The time that lies in gaps between samples."""

    @property
    def part(self) -> EnginePart:
        return self._part(
            sum((each.counted for each in self.stretches), NOTHING),
            sum((each.traffic for each in self.stretches), NO_TRAFFIC),
            self.restarts > 0,
        )

    @property
    def since_start(self) -> EnginePart:
        """Its counters at the end of the span."""
        counted, traffic = (self.last.counted, self.last.traffic) if self.last else (NOTHING, NO_TRAFFIC)
        return self._part(counted, traffic, False)

    @property
    def begin(self) -> float:
        return self.end - sum(each.seconds or 0.0 for each in self.stretches)

    @property
    def end(self) -> float:
        return self.last.at if self.last else 0.0

    @property
    def notes(self) -> Iterator[str]:
        if self.restarts:
            times = "once" if self.restarts == 1 else f"{self.restarts} times"
            yield (
                f"{self.samples.name} was restarted {times}: "
                "what it counted between a restart and the sample before it is lost"
            )
        if self.silent_s:
            yield f"{self.samples.name} has no samples for {self.silent_s:.0f} s; its counts over the gaps are whole"
        if self.dropped:
            yield f"{self.samples.name}: {self.dropped} samples are left out, their counters do not fit together"

    def _part(self, counted: DraftCounters, traffic: Traffic, restarted: bool) -> EnginePart:
        return EnginePart(self.samples.where, self.samples.model, self.samples.engine, counted, traffic, restarted)


def history_of(samples: EngineSamples, since: float, step_s: float | None) -> History:
    """`since` is where the span begins: counters born after it count from zero. A gap is longer than 1.5 `step_s`."""
    moments, dropped = moments_of(samples)
    stretches: list[TrendPoint] = []
    restarts = 0
    before: Moment | None = None
    for now in moments:
        stretch = _stretch(before, now, since)
        if stretch is None:
            dropped += 1
            continue
        restarts += before is not None and _began_anew(before, now)
        if stretch.seconds is not None:
            stretches.append(stretch)
        before = now
    silent = sum(
        later.at - earlier.at
        for earlier, later in pairwise(moments)
        if step_s is not None and later.at - earlier.at > 1.5 * step_s
    )
    return History(samples, tuple(stretches), before, restarts, dropped, silent)


def trend_of(histories: Iterable[History]) -> tuple[TrendPoint, ...]:
    """All engines together: a point ends wherever a stretch of one of them does."""
    at_once: dict[float, TrendPoint] = {}
    for history in histories:
        for stretch in history.stretches:
            at = stretch.at or 0.0
            if (other := at_once.get(at)) is not None:
                stretch = TrendPoint(
                    at,
                    max(other.seconds or 0.0, stretch.seconds or 0.0),
                    other.counted + stretch.counted,
                    other.traffic + stretch.traffic,
                )
            at_once[at] = stretch
    trend = Trend()
    end = None
    for at, point in sorted(at_once.items()):
        trend.add(point if end is None else replace(point, seconds=at - end))
        end = at
    return trend.points


def moments_of(samples: EngineSamples) -> tuple[list[Moment], int]:
    """The times at which every counter of drafts has a value, and the number of other times.

    How many positions there are may change when the engine starts anew, not in between.
    """
    times = sorted(samples.drafts.keys() | samples.draft_tokens.keys() | samples.accepted.keys())
    kept: list[Moment] = []
    for life in _lives(samples, times):
        positions = max((_positions_at(samples, at) for at in life), default=0)
        fill = _Fill(samples.traffic)
        for at in life:
            traffic = fill.at(at)
            counted = _counted_at(samples, at, positions)
            if counted is not None:
                kept.append(Moment(at, counted, traffic))
    return kept, len(times) - len(kept)


class _Fill:
    """Traffic at a time: each counter's value there, or its last one before."""

    def __init__(self, traffic: Mapping[str, Sequence[Values]]) -> None:
        self._counters = traffic
        self._last: dict[tuple[str, int], int] = {}

    def at(self, at: float) -> Traffic:
        for name, counters in self._counters.items():
            for number, values in enumerate(counters):
                if at in values:
                    self._last[name, number] = values[at]
        return Traffic(**{each.name: self._sum(each.name) for each in fields(Traffic)})

    def _sum(self, name: str) -> int | None:
        known = [self._last.get((name, number)) for number in range(len(self._counters.get(name, ())))]
        there = [value for value in known if value is not None]
        return sum(there) if there and len(there) == len(known) else None


def _lives(samples: EngineSamples, times: Sequence[float]) -> Iterator[list[float]]:
    """`times` from one start of the engine to the next."""
    life: list[float] = []
    last_drafts, last_born = 0, None
    for at in times:
        drafts, born = samples.drafts.get(at, last_drafts), samples.born.get(at, last_born)
        if life and (drafts < last_drafts or (last_born is not None and born != last_born)):
            yield life
            life = []
        life.append(at)
        last_drafts, last_born = drafts, born
    if life:
        yield life


def _positions_at(samples: EngineSamples, at: float) -> int:
    """How many positions have a value there, from the first without a hole."""
    return next(position for position in count() if at not in samples.accepted_at.get(position, {}))


def _counted_at(samples: EngineSamples, at: float, positions: int) -> DraftCounters | None:
    if not (at in samples.drafts and at in samples.draft_tokens and at in samples.accepted):
        return None
    if _positions_at(samples, at) != positions:
        return None
    return DraftCounters(
        samples.drafts[at],
        samples.draft_tokens[at],
        samples.accepted[at],
        tuple(samples.accepted_at[position][at] for position in range(positions)),
        samples.born.get(at),
    )


def _began_anew(before: Moment, now: Moment) -> bool:
    """A birth known and unchanged outweighs a step back, which two scrapers of one server in turn make too."""
    if now.counted.born is not None and now.counted.born == before.counted.born:
        return False
    return now.counted.began_anew_since(before.counted) or (now.traffic - before.traffic).went_back


def _stretch(before: Moment | None, now: Moment, since: float) -> TrendPoint | None:
    """What was counted up to `now`; without length where it only is the first sample. None: the two contradict."""
    if now.counted.implausible() is not None:
        return None
    if before is None:
        born = now.counted.born
        if born is not None and since <= born <= now.at:
            return TrendPoint(now.at, now.at - born, replace(now.counted, born=None), now.traffic)
        return TrendPoint(now.at, None, NOTHING, NO_TRAFFIC)
    if _began_anew(before, now):
        return TrendPoint(now.at, now.at - before.at, replace(now.counted, born=None), now.traffic)
    counted, traffic = now.counted - before.counted, now.traffic - before.traffic
    if counted.implausible() is not None or traffic.went_back:
        return None
    return TrendPoint(now.at, now.at - before.at, counted, traffic)
