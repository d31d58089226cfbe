"""Made measurements of a tune: a drafter with given acceptance rates and a step that costs so much a token."""

from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.tuning import AnsweredRequest, Candidate, Measurement

RATES = (0.7, 0.5, 0.3, 0.15, 0.08, 0.04, 0.02)
TOKENS = 64
TTFT_S = 0.05
WOBBLE = (1.0, 0.97, 1.04, 0.99, 1.02, 0.98, 1.01, 1.03)
"""What requests differ by, always alike."""


def measurement(
    tokens: int,
    concurrency: int = 1,
    *,
    step_s: float = 0.010,
    token_s: float = 0.001,
    rates: tuple[float, ...] = RATES,
    requests: int = 24,
    slower: float = 1.0,
    control: bool = False,
    also: str | None = None,
    wobble: tuple[float, ...] = WOBBLE,
) -> Measurement:
    """A step of `tokens` takes step_s + tokens * token_s; without speculation it takes step_s, all `slower` times."""
    shown = rates[:tokens]
    length = 1 + sum(shown)
    tpot = (step_s + tokens * token_s) / length * slower
    answered = tuple(
        AnsweredRequest(number, TTFT_S, round(TTFT_S + (TOKENS - 1) * tpot * wobble[number % len(wobble)], 6), TOKENS)
        for number in range(requests)
    )
    steps = round(requests * (TOKENS - 1) / length)
    accepted = tuple(round(rate * steps) for rate in shown)
    return Measurement(
        candidate=Candidate(tokens, also),
        concurrency=concurrency,
        control=control,
        seconds=round(sum(request.seconds for request in answered) / concurrency, 6),
        requests=answered,
        failed=0,
        counted=DraftCounters(steps, steps * tokens, sum(accepted), accepted) if tokens else NOTHING,
        prefix_hit_rate=0.0,
        other_requests=0,
        startup_s=40.0,
        measured_at="2026-11-30T03:17:52Z",
        used_by_others=0.05,
    )
