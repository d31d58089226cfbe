"""What candidates would do that were not measured.

A step of k draft tokens yields L(k) = 1 + the sum of the acceptance rates of the first k positions, which one run at
the largest k tells. Its time t(k) is taken as a straight line through the measured counts. A request of N tokens then
takes TTFT + (N - 1) t(k) / L(k). What the model misses (the last wave of requests, a drafter whose positions change
with the length of its block, steps cut off at a request's end) is the ratio of measured to modelled, taken at the
measured counts and between them by a straight line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_cli.facts.tuning import Candidate, Checked, LatencyBound, Measurement, Prediction

FEWEST_POINTS = 2
SHORTEST_STEP = 0.2
"""Of the shortest measured step: a line through noise must not make a step free."""


@dataclass(frozen=True)
class CostModel:
    """Of one concurrency and one value of the one more setting. `measured` is in rising order of tokens."""

    measured: tuple[Measurement, ...]
    bound: LatencyBound

    @property
    def largest(self) -> Measurement:
        return self.measured[-1]

    def predict(self, candidate: Candidate) -> Prediction:
        """Of a number of tokens that is no larger than the largest measured one."""
        k = candidate.tokens
        tokens_per_s = self._modelled(k) * self._between(
            k, [m.tokens_per_s / self._modelled(_k(m)) for m in self.measured]
        )
        return Prediction(
            candidate=candidate,
            concurrency=self.largest.concurrency,
            tokens_per_s=tokens_per_s,
            goodput=tokens_per_s * self._share_within_bound(k),
            acceptance_length=self.length(k),
            step_s=self.step_s(k),
        )

    def length(self, k: int) -> float:
        return 1 + sum(self.largest.rates[:k])

    def step_s(self, k: int) -> float:
        import numpy as np

        slope, at_zero = np.polyfit([_k(m) for m in self.measured], [m.step_s for m in self.measured], 1)
        return max(float(at_zero + slope * k), SHORTEST_STEP * min(m.step_s for m in self.measured))

    def _modelled(self, k: int) -> float:
        largest = self.largest
        ttft_s = self._between(k, [m.mean_ttft_s for m in self.measured])
        decoding_s = (largest.mean_output_tokens - 1) * self.step_s(k) / self.length(k)
        return largest.concurrency * largest.mean_output_tokens / (ttft_s + decoding_s)

    def _share_within_bound(self, k: int) -> float:
        """Of the largest run's requests, each with its time per token stretched as the model says."""
        if not self.bound.given:
            return 1.0
        largest = self.largest
        factor = (self.step_s(k) / self.length(k)) / (self.step_s(_k(largest)) / self.length(_k(largest)))
        return sum(self.bound.met_by(request, factor) for request in largest.requests) / len(largest.requests)

    def _between(self, k: int, values: Sequence[float]) -> float:
        import numpy as np

        return float(np.interp(k, [_k(m) for m in self.measured], values))


def cost_model(measured: Sequence[Measurement], bound: LatencyBound) -> CostModel | None:
    """From measurements with speculation at one concurrency; None of fewer than two, or where nothing was drafted."""
    ordered = tuple(sorted(measured, key=_k))
    if len(ordered) < FEWEST_POINTS or any(m.step_s <= 0 for m in ordered) or not ordered[-1].rates:
        return None
    return CostModel(ordered, bound)


def left_out(model: CostModel) -> Checked | None:
    """The middle count, as the two at the ends foretell it; None of two."""
    if len(model.measured) <= FEWEST_POINTS:
        return None
    middle = model.measured[len(model.measured) // 2]
    ends = CostModel((model.measured[0], model.measured[-1]), model.bound)
    return Checked(ends.predict(middle.candidate), middle)


def _k(measurement: Measurement) -> int:
    return measurement.candidate.tokens
