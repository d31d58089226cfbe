"""Goodput of one measurement, and of one against another, with intervals that know how much requests differ.

Requests run one after the other in so many lanes, so goodput is the lanes' tokens over the lanes' time. The interval is
a bootstrap over requests; of a ratio, over prompts that both answered (paired), which takes the prompts' differences
out.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark_cli.facts.bootstrap import bootstrap_interval
from dspark_cli.facts.tuning import LatencyBound, Measurement

if TYPE_CHECKING:
    import numpy as np

SEED = 0
FEWEST_REQUESTS = 8
"""Fewer than these tell nothing of how much requests differ."""


@dataclass(frozen=True)
class Ratio:
    """Goodput over another goodput, with its 95% interval; infinite over nothing."""

    value: float
    low: float
    high: float

    def widened(self, share: float) -> "Ratio":
        """By what else is known to vary; by an infinite share nothing is known."""
        if share == math.inf:
            return Ratio(self.value, 0.0, math.inf)
        return Ratio(self.value, self.low / (1 + share), self.high * (1 + share))


def goodput_interval(measurement: Measurement, bound: LatencyBound) -> tuple[float, float] | None:
    """None of fewer than two requests."""
    lanes = sum(request.seconds for request in measurement.requests) / measurement.seconds
    rows = [(float(request.output_tokens * bound.met_by(request)), request.seconds) for request in measurement.requests]
    found = bootstrap_interval(rows, _rate, SEED)
    return (lanes * found[0], lanes * found[1]) if found else None


def goodput_ratio(measured: Measurement, base: Measurement, bound: LatencyBound) -> Ratio | None:
    """`measured` over `base`; None where they share too few prompts, or so few requests met the bound that draws of the
    bootstrap hold none."""
    ours = {request.prompt: request for request in measured.requests}
    theirs = {request.prompt: request for request in base.requests}
    shared = sorted(ours.keys() & theirs.keys())
    value, base_value = measured.goodput(bound), base.goodput(bound)
    if len(shared) < FEWEST_REQUESTS or not (value or base_value):
        return None
    if not base_value:
        low = goodput_interval(measured, bound)
        return Ratio(math.inf, math.inf if low and low[0] > 0 else 0.0, math.inf)
    if not value:
        base_interval = goodput_interval(base, bound)
        return Ratio(0.0, 0.0, 0.0 if base_interval and base_interval[0] > 0 else math.inf)
    rows = [
        (
            float(ours[prompt].output_tokens * bound.met_by(ours[prompt])),
            ours[prompt].seconds,
            float(theirs[prompt].output_tokens * bound.met_by(theirs[prompt])),
            theirs[prompt].seconds,
        )
        for prompt in shared
    ]
    found = bootstrap_interval(rows, _rate_ratio, SEED)
    if found is None:
        return None
    of_all = value / base_value
    of_shared = _plain_ratio(rows)
    scale = of_all / of_shared if of_shared else 1.0
    return Ratio(of_all, min(of_all, scale * found[0]), max(of_all, scale * found[1]))


def _plain_ratio(rows: list[tuple[float, float, float, float]]) -> float:
    tokens, seconds, base_tokens, base_seconds = (sum(column) for column in zip(*rows, strict=True))
    return (tokens / seconds) / (base_tokens / base_seconds) if base_tokens else 0.0


def _rate(tokens: "np.ndarray", seconds: "np.ndarray", axis: int = -1) -> "np.ndarray":
    import numpy as np

    return np.asarray(tokens.sum(axis=axis) / seconds.sum(axis=axis))


def _rate_ratio(
    tokens: "np.ndarray",
    seconds: "np.ndarray",
    base_tokens: "np.ndarray",
    base_seconds: "np.ndarray",
    axis: int = -1,
) -> "np.ndarray":
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):  # a draw may hold no request within the bound
        return np.asarray(_rate(tokens, seconds, axis) / _rate(base_tokens, base_seconds, axis))
