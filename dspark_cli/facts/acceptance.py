"""Draft acceptance as vLLM counts it: counters, their difference, and the profile that follows from them."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import TypeVar

from dspark_cli.errors import NotFit
from dspark_cli.sources.server_metrics import Sample, Scrape

Key = TypeVar("Key")

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTS_BORN = "vllm:spec_decode_num_drafts_created"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

LARGEST_COUNT = 2**53
"""Above it a float, which is what a sample holds, no longer tells whole numbers apart."""


@dataclass(frozen=True)
class DraftCounters:
    """What one engine has counted: draft steps, tokens drafted, tokens accepted, accepted by draft position.

    `born` is when its counters were created (seconds since 1970), where the server says it.
    """

    drafts: int
    draft_tokens: int
    accepted: int
    accepted_at: tuple[int, ...]
    born: float | None = None

    def __add__(self, other: "DraftCounters") -> "DraftCounters":
        return self._combined(other, 1)

    def __sub__(self, other: "DraftCounters") -> "DraftCounters":
        return self._combined(other, -1)

    def began_anew_since(self, earlier: "DraftCounters") -> bool:
        """Whether the server was restarted in between: other counters than before, or one that went back."""
        if self.born is not None and earlier.born is not None and self.born != earlier.born:
            return True
        step = self - earlier
        return min(step.drafts, step.draft_tokens, step.accepted, *step.accepted_at) < 0

    def _combined(self, other: "DraftCounters", sign: int) -> "DraftCounters":
        length = max(len(self.accepted_at), len(other.accepted_at))
        mine, theirs = (at + (0,) * (length - len(at)) for at in (self.accepted_at, other.accepted_at))
        return DraftCounters(
            self.drafts + sign * other.drafts,
            self.draft_tokens + sign * other.draft_tokens,
            self.accepted + sign * other.accepted,
            tuple(a + sign * b for a, b in zip(mine, theirs, strict=True)),
        )


NOTHING = DraftCounters(0, 0, 0, ())

Engine = tuple[str, str]
"""Model name, engine index."""

EngineCounters = dict[Engine, DraftCounters]


def read_counters(scrape: Scrape) -> EngineCounters:
    """The speculative counters of every engine in `scrape`; empty where the server does not speculate.

    Raises:
        NotFit: a counter is no whole number or there twice, a position is missing, or more was accepted than drafted.
    """
    totals: dict[Engine, dict[str, int]] = {}
    positions: dict[Engine, dict[int, int]] = {}
    for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED):
        for sample in scrape.named(name):
            _enter(totals.setdefault(_engine(sample.labels), {}), name, sample)
    for sample in scrape.named(ACCEPTED_AT):
        _enter(positions.setdefault(_engine(sample.labels), {}), _position(sample.labels), sample)
    born = {_engine(sample.labels): sample.value for sample in scrape.named(DRAFTS_BORN) if math.isfinite(sample.value)}
    return {
        engine: _plausible(
            DraftCounters(
                counted.get(DRAFTS, 0),
                counted.get(DRAFT_TOKENS, 0),
                counted.get(ACCEPTED, 0),
                _by_position(positions.get(engine, {})),
                born.get(engine),
            )
        )
        for engine, counted in totals.items()
    }


@dataclass(frozen=True)
class Window:
    """What was counted between two scrapes, or since server start."""

    counted: DraftCounters
    engines: list[Engine]
    """The engines in `counted`."""
    restarted: bool
    """The counters of one of them began anew, so its part begins at the restart, not at the first scrape."""
    notes: list[str]
    """Which engines are not in `counted`, and why."""


def counted_since_start(engines: EngineCounters) -> Window:
    """All that the engines have counted."""
    return Window(sum(engines.values(), NOTHING), list(engines), restarted=False, notes=[])


def counted_between(before: EngineCounters, after: EngineCounters, since: float, until: float) -> Window:
    """The difference of two scrapes taken at `since` and `until` (seconds since 1970), engine by engine.

    An engine that began in between counts from zero. One that appears with counters of unknown or greater age is left
    out, for its history is not of this window.

    Raises:
        NotFit: in the window, more was accepted than drafted.
    """
    counted: EngineCounters = {}
    restarted, notes = False, []
    for engine, now in after.items():
        then = before.get(engine)
        # Without a time of birth, only one that was there before and went back surely began anew in between.
        began_in_between = then is not None if now.born is None else since <= now.born <= until
        if then is not None and not now.began_anew_since(then):
            counted[engine] = _plausible(now - then)
        elif began_in_between:
            counted[engine] = now
            restarted |= then is not None
        else:
            notes.append(f"{_name(engine)} is left out: its counters are not those of the first scrape, nor born since")
    notes += [
        f"{_name(engine)} is left out: it is gone by the second scrape" for engine in sorted(before.keys() - after)
    ]
    return Window(sum(counted.values(), NOTHING), list(counted), restarted, notes)


@dataclass(frozen=True)
class PositionAcceptance:
    """One draft position. Rates are shares from 0 to 1; None where nothing was counted to divide by."""

    position: int
    accepted: int
    rate: float
    """Accepted at this position over draft steps, as vLLM defines it."""
    rate_low: float
    rate_high: float
    """The 95% Wilson interval of `rate`."""
    conditional_rate: float | None
    """Accepted here over accepted at the position before: how well the drafter goes on once it was right so far."""


@dataclass(frozen=True)
class AcceptanceProfile:
    """Draft acceptance of a window, position by position and in all."""

    drafts: int
    draft_tokens: int
    accepted: int
    mean_acceptance_length: float
    """1 + accepted / drafts: tokens that an average draft step yields, the target's own token included."""
    draft_acceptance_rate: float | None
    """accepted / draft_tokens."""
    positions: tuple[PositionAcceptance, ...]

    @classmethod
    def of(cls, counted: DraftCounters) -> "AcceptanceProfile":
        """Raises ValueError where no draft step was counted."""
        if counted.drafts <= 0:
            raise ValueError("no draft step was counted")
        reached = (counted.drafts, *counted.accepted_at)
        return cls(
            drafts=counted.drafts,
            draft_tokens=counted.draft_tokens,
            accepted=counted.accepted,
            mean_acceptance_length=1 + counted.accepted / counted.drafts,
            draft_acceptance_rate=counted.accepted / counted.draft_tokens if counted.draft_tokens else None,
            positions=tuple(
                PositionAcceptance(
                    position,
                    accepted,
                    accepted / counted.drafts,
                    *wilson_interval(accepted, counted.drafts),
                    conditional_rate=accepted / reached[position] if reached[position] else None,
                )
                for position, accepted in enumerate(counted.accepted_at)
            ),
        )


@dataclass(frozen=True)
class AcceptanceReport:
    """`seconds` is the window's length, None for "since server start"."""

    url: str
    seconds: float | None
    engines: list[str]
    """Those that `profile` counts."""
    restarted: bool
    profile: AcceptanceProfile
    notes: list[str]
    """Which engines are left out, and why."""


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a share. `successes` of 0..`trials`, `trials` > 0."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(max(0.0, share * (1 - share)) / trials + spread / (4 * trials))
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))


def engines_named(engines: Iterable[Engine]) -> list[str]:
    """`model engine N` for each engine, in order."""
    return [_name(engine) for engine in sorted(engines)]


def _name(engine: Engine) -> str:
    model, index = engine
    return f"{model or 'unnamed model'} engine {index}"


def _engine(labels: dict[str, str]) -> Engine:
    return labels.get("model_name", ""), labels.get("engine", "0")


def _position(labels: dict[str, str]) -> int:
    position = labels.get("position", "")
    if not re.fullmatch("[0-9]{1,4}", position):
        raise _unusable(f"{ACCEPTED_AT} has position {position[:20]!r}")
    return int(position)


def _enter(counts: dict[Key, int], key: Key, sample: Sample) -> None:
    """Two samples of one engine differ in a label that vLLM does not write, such as an aggregator's pod."""
    if key in counts:
        raise _unusable(f"{sample.name} is there twice for {_name(_engine(sample.labels))}")
    if not 0 <= sample.value <= LARGEST_COUNT or sample.value != int(sample.value):
        raise _unusable(f"{sample.name} is {sample.value}, not a count")
    counts[key] = int(sample.value)


def _by_position(counts: dict[int, int]) -> tuple[int, ...]:
    for at in range(len(counts)):
        if at not in counts:
            raise _unusable(f"{ACCEPTED_AT} has no position {at}")
    return tuple(counts[at] for at in range(len(counts)))


def _plausible(counted: DraftCounters) -> DraftCounters:
    """Only a draft accepted at one position reaches the next, and no more is accepted than drafted."""
    if any(here > before for before, here in pairwise((counted.drafts, *counted.accepted_at))):
        raise _unusable("more is accepted at a position than drafts reached it")
    if counted.accepted > counted.draft_tokens:
        raise _unusable("more tokens are accepted than drafted")
    return counted


def _unusable(why: str) -> NotFit:
    return NotFit(
        f"the server's speculative counters cannot be used: {why}",
        "scrape the server itself, not an aggregator or a proxy that merges servers",
    )
