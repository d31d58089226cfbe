"""Does the length of the block change how often its first positions are accepted?

A causal drafter's position i sees positions before it alone, so a shorter block accepts there as a longer one does. One
that is not causal (DFlash) sees the masks behind it too, so fewer of them can change what it drafts first.
"""

from dataclasses import dataclass

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.intervals import acceptance_length_interval
from dspark_cli.facts.tuning import Measurement

WORTH_SAYING = 0.05
"""Of the accepted tokens a step; less than that does not decide between counts."""


@dataclass(frozen=True)
class BlockEffect:
    """Mean acceptance lengths at `tokens`: as measured with blocks of that length, and as the first positions of the
    longest block have it. `shown` is whether they differ by more than chance and by what matters."""

    tokens: int
    longest: int
    measured: float
    of_longest: float
    shown: bool


def block_effect(longest: Measurement, shorter: Measurement) -> BlockEffect | None:
    """None where one of the two drafted nothing, or does not tell positions."""
    k = shorter.candidate.tokens
    if not longest.rates or not shorter.rates:
        return None
    cut = longest.counted.accepted_at[:k]
    of_longest = DraftCounters(longest.counted.drafts, longest.counted.drafts * k, sum(cut), cut)
    bounds = acceptance_length_interval(shorter.counted), acceptance_length_interval(of_longest)
    measured, expected = shorter.acceptance_length, 1 + sum(longest.rates[:k])
    if bounds[0] is None or bounds[1] is None:
        return None
    apart = bounds[0][0] > bounds[1][1] or bounds[0][1] < bounds[1][0]
    matters = expected > 1 and abs(measured - expected) > WORTH_SAYING * (expected - 1)
    return BlockEffect(k, longest.candidate.tokens, measured, expected, apart and matters)
