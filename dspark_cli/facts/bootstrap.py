"""The 95% interval of a statistic of rows that are alike, by drawing them again (the bootstrap)."""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dspark_cli.facts.intervals import CONFIDENCE

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 5000


def bootstrap_interval(
    rows: Sequence[tuple[float, ...]], statistic: "Callable[..., np.ndarray]", seed: int
) -> tuple[float, float] | None:
    """Of `statistic(*columns, axis)`, rows drawn together; None of fewer than two rows, or where it has no end."""
    import numpy as np
    from scipy.stats import bootstrap

    if len(rows) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows that are all alike have an interval of no width, which is fine
        drawn = bootstrap(
            [np.array(column, dtype=float) for column in zip(*rows, strict=True)],
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return (float(drawn.low), float(drawn.high)) if np.isfinite(drawn.low) and np.isfinite(drawn.high) else None
