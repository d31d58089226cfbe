"""95% intervals. scipy is imported where it is used: it takes a second."""

import math
from statistics import NormalDist

from dspark_cli.facts.draft_counters import DraftCounters

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half the width of such an interval of a normal value, in standard deviations."""


def wilson_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The Wilson score interval of a share. `successes` of 0..`trials`, `trials` > 0."""
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def acceptance_length_interval(counted: DraftCounters) -> tuple[float, float] | None:
    """The interval of the mean acceptance length, draft steps taken as independent.

    How many tokens a step accepts is known in distribution: a step accepts more than i where it accepts at i. Drafts
    of one request are alike, so where the requests are few the truth is wider. None where positions are not known.
    """
    if counted.drafts <= 0 or sum(counted.accepted_at) != counted.accepted:
        return None
    mean = counted.accepted / counted.drafts
    of_squares = sum((2 * at + 1) * accepted for at, accepted in enumerate(counted.accepted_at)) / counted.drafts
    reach = Z * math.sqrt(max(0.0, of_squares - mean * mean) / counted.drafts)
    return 1 + max(0.0, mean - reach), 1 + mean + reach
