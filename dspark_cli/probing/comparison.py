"""Restored against cold over the same prompts, with an interval that knows how much prompts differ."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dspark_cli.facts.intervals import CONFIDENCE
from dspark_cli.facts.probe import Comparison, Phase, ProbedRequest

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 5000


def compare(baseline: Sequence[Phase], phase: Phase, seed: int = 0) -> Comparison | None:
    """`phase` against the `baseline` phases together; None where they share no prompt with a draft step in both.

    The draft steps of one request are alike, so the prompt is what is drawn: the interval is a bootstrap over prompts,
    each with its own baseline (paired), which takes the prompts' differences out.
    """
    before = _by_prompt([request for each in baseline for request in each.requests])
    after = _by_prompt(phase.requests)
    shared = sorted(before.keys() & after.keys())
    pairs = [(*before[prompt], *after[prompt]) for prompt in shared if before[prompt][1] and after[prompt][1]]
    if not pairs:
        return None
    accepted_before, steps_before, accepted, steps = (sum(column) for column in zip(*pairs, strict=True))
    kept = _kept(pairs, seed) if accepted_before else None
    return Comparison(
        phase=phase.name,
        cached_tokens=phase.cached_tokens,
        prompts=len(pairs),
        cold_length=1 + accepted_before / steps_before,
        length=1 + accepted / steps,
        kept=(accepted / steps) / (accepted_before / steps_before) if accepted_before else None,
        kept_low=kept[0] if kept else None,
        kept_high=kept[1] if kept else None,
    )


def _by_prompt(requests: Sequence[ProbedRequest]) -> dict[int, tuple[int, int]]:
    """Accepted tokens and draft steps of each prompt."""
    sums: dict[int, tuple[int, int]] = {}
    for request in requests:
        accepted, steps = sums.get(request.prompt, (0, 0))
        sums[request.prompt] = accepted + request.accepted, steps + request.draft_steps
    return sums


def _kept(pairs: Sequence[tuple[int, int, int, int]], seed: int) -> tuple[float, float] | None:
    import numpy as np
    from scipy.stats import bootstrap

    if len(pairs) < 2:
        return None
    columns = [np.array(column, dtype=float) for column in zip(*pairs, strict=True)]
    drawn = bootstrap(
        columns,
        _ratio,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return (float(drawn.low), float(drawn.high)) if np.isfinite(drawn.low) and np.isfinite(drawn.high) else None


def _ratio(
    accepted_before: "np.ndarray",
    steps_before: "np.ndarray",
    accepted: "np.ndarray",
    steps: "np.ndarray",
    axis: int = -1,
) -> "np.ndarray":
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):  # a draw may hold no accepted token
        after = accepted.sum(axis=axis) / steps.sum(axis=axis)
        return np.asarray(after / (accepted_before.sum(axis=axis) / steps_before.sum(axis=axis)))
