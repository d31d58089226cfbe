"""Draft acceptance as vLLM counts it: counters, their difference, and the profile that follows from them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from dspark_cli.errors import NotFit
from dspark_cli.sources.server_metrics import Scrape

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTS_BORN = "vllm:spec_decode_num_drafts_created"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


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

EngineCounters = dict[tuple[str, str], DraftCounters]
"""(model name, engine index) -> its counters."""


def read_counters(scrape: Scrape) -> EngineCounters:
    """The speculative counters of every engine in `scrape`; empty where the server does not speculate.

    Raises:
        NotFit: a counter is no whole number, or a position is missing.
    """
    totals: dict[tuple[str, str], dict[str, int]] = {}
    positions: dict[tuple[str, str], dict[int, int]] = {}
    for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED):
        for sample in scrape.named(name):
            totals.setdefault(_engine(sample.labels), {})[name] = _count(name, sample.value)
    for sample in scrape.named(ACCEPTED_AT):
        position = sample.labels.get("position", "")
        if not position.isdecimal():
            raise _unusable(f"{ACCEPTED_AT} has position {position!r}")
        positions.setdefault(_engine(sample.labels), {})[int(position)] = _count(ACCEPTED_AT, sample.value)
    born = {_engine(sample.labels): sample.value for sample in scrape.named(DRAFTS_BORN)}
    return {
        engine: DraftCounters(
            counted.get(DRAFTS, 0),
            counted.get(DRAFT_TOKENS, 0),
            counted.get(ACCEPTED, 0),
            _by_position(positions.get(engine, {})),
            born.get(engine),
        )
        for engine, counted in totals.items()
    }


@dataclass(frozen=True)
class Window:
    """What was counted between two scrapes, or since server start."""

    counted: DraftCounters
    restarted: bool
    """The counters began anew, so `counted` begins at the restart, not at the first scrape."""


def counted_between(before: EngineCounters, after: EngineCounters) -> Window:
    """The difference, engine by engine; an engine that was restarted counts from zero."""
    total, restarted = NOTHING, False
    for engine, now in after.items():
        then = before.get(engine, NOTHING)
        if now.began_anew_since(then):
            then, restarted = NOTHING, True
        total += now - then
    return Window(total, restarted)


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
    restarted: bool
    profile: AcceptanceProfile


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a share. `successes` of 0..`trials`, `trials` > 0."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = successes / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(max(0.0, share * (1 - share)) / trials + spread / (4 * trials))
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))


def _engine(labels: dict[str, str]) -> tuple[str, str]:
    return labels.get("model_name", ""), labels.get("engine", "0")


def _count(name: str, value: float) -> int:
    if not math.isfinite(value) or value < 0 or value != int(value):
        raise _unusable(f"{name} is {value}, not a count")
    return int(value)


def _by_position(counts: dict[int, int]) -> tuple[int, ...]:
    missing = [at for at in range(max(counts, default=-1) + 1) if at not in counts]
    if missing:
        raise _unusable(f"{ACCEPTED_AT} has no position {missing[0]}")
    return tuple(counts[at] for at in range(len(counts)))


def _unusable(why: str) -> NotFit:
    return NotFit(f"the server's speculative counters cannot be used: {why}", "scrape again; a proxy may merge servers")


def engines_named(engines: Iterable[tuple[str, str]]) -> list[str]:
    """`model engine N` for each engine, in order."""
    return [f"{model or 'unnamed model'} engine {index}" for model, index in sorted(engines)]
