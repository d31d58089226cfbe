"""Restored against cold over the same prompts, with an interval that knows how much prompts differ."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dspark_cli.facts.bootstrap import bootstrap_interval
from dspark_cli.facts.probe import Comparison, Phase

if TYPE_CHECKING:
    import numpy as np


def compare(baseline: Sequence[Phase], phase: Phase, seed: int = 0) -> Comparison | None:
    """`phase` against the `baseline` phases together; None where they share no prompt with a draft step in both.

    The draft steps of one request are alike, so the prompt is what is drawn: the interval is a bootstrap over prompts,
    each with its own baseline (paired), which takes the prompts' differences out.
    """
    before, after = _by_prompt(baseline), _by_prompt([phase])
    shared = sorted(before.keys() & after.keys())
    pairs = [(*before[prompt], *after[prompt]) for prompt in shared if before[prompt][1] and after[prompt][1]]
    if not pairs:
        return None
    accepted_before, steps_before, accepted, steps = (sum(column) for column in zip(*pairs, strict=True))
    kept = bootstrap_interval(pairs, _ratio, seed) if accepted_before else None
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


def length_interval(phase: Phase, seed: int = 0) -> tuple[float, float] | None:
    """The 95% interval of the phase's acceptance length, a bootstrap over its requests; None of fewer than two."""
    pairs = [(accepted, steps) for accepted, steps in phase.steps_by_prompt.values() if steps]
    found = bootstrap_interval(pairs, _share, seed)
    return (1 + found[0], 1 + found[1]) if found else None


def _by_prompt(phases: Sequence[Phase]) -> dict[int, tuple[float, float]]:
    """Accepted tokens and draft steps of each prompt, over all `phases`."""
    sums: dict[int, tuple[float, float]] = {}
    for phase in phases:
        for prompt, (accepted, steps) in phase.steps_by_prompt.items():
            accepted_before, steps_before = sums.get(prompt, (0.0, 0.0))
            sums[prompt] = accepted_before + accepted, steps_before + steps
    return sums


def _share(accepted: "np.ndarray", steps: "np.ndarray", axis: int = -1) -> "np.ndarray":
    import numpy as np

    return np.asarray(accepted.sum(axis=axis) / steps.sum(axis=axis))


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
