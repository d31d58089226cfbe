"""The acceptance profile: which share of drafts is accepted, by position and in all."""

from dataclasses import dataclass

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.intervals import acceptance_length_interval, wilson_interval


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
    conditional_low: float | None
    conditional_high: float | None


@dataclass(frozen=True)
class AcceptanceProfile:
    """Draft acceptance of a span, position by position and in all."""

    drafts: int
    draft_tokens: int
    accepted: int
    mean_acceptance_length: float
    """1 + accepted / drafts: tokens that an average draft step yields, the target's own token included."""
    length_low: float | None
    length_high: float | None
    """Its 95% interval, draft steps taken as independent; None where the positions are not known."""
    draft_acceptance_rate: float | None
    """accepted / draft_tokens."""
    positions: tuple[PositionAcceptance, ...]

    @classmethod
    def of(cls, counted: DraftCounters) -> "AcceptanceProfile":
        """Raises ValueError where no draft step was counted."""
        if counted.drafts <= 0:
            raise ValueError("no draft step was counted")
        low, high = acceptance_length_interval(counted) or (None, None)
        return cls(
            drafts=counted.drafts,
            draft_tokens=counted.draft_tokens,
            accepted=counted.accepted,
            mean_acceptance_length=1 + counted.accepted / counted.drafts,
            length_low=low,
            length_high=high,
            draft_acceptance_rate=counted.accepted / counted.draft_tokens if counted.draft_tokens else None,
            positions=tuple(_position(at, counted) for at in range(len(counted.accepted_at))),
        )

    @property
    def drafted_per_step(self) -> float:
        return self.draft_tokens / self.drafts


def _position(at: int, counted: DraftCounters) -> PositionAcceptance:
    accepted, reached = counted.accepted_at[at], (counted.drafts, *counted.accepted_at)[at]
    return PositionAcceptance(
        at,
        accepted,
        accepted / counted.drafts,
        *wilson_interval(accepted, counted.drafts),
        conditional_rate=accepted / reached if reached else None,
        conditional_low=wilson_interval(accepted, reached)[0] if reached else None,
        conditional_high=wilson_interval(accepted, reached)[1] if reached else None,
    )
