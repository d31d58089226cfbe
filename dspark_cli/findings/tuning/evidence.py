"""What the checks of a tune look at."""

from dataclasses import dataclass

from dspark_cli.facts.tuning import (
    Drift,
    FailedCandidate,
    LatencyBound,
    Measurement,
    Prediction,
    Schedule,
    TuningQuestion,
)
from dspark_cli.tuning.block_length import BlockEffect
from dspark_cli.tuning.verdict import LoadVerdict


@dataclass(frozen=True)
class Checked:
    """A prediction and the measurement that was not used for it."""

    prediction: Prediction
    measured: Measurement

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.prediction.tokens_per_s / self.measured.tokens_per_s - 1


@dataclass(frozen=True)
class TuningEvidence:
    question: TuningQuestion
    bound: LatencyBound
    measurements: tuple[Measurement, ...]
    verdicts: tuple[LoadVerdict, ...]
    checked: tuple[Checked, ...]
    effects: tuple[BlockEffect, ...]
    drifts: tuple[Drift, ...]
    failed: tuple[FailedCandidate, ...]
    schedule: Schedule | None
    several_loads: bool


def at_a_time(concurrency: int) -> str:
    return "one request at a time" if concurrency == 1 else f"{concurrency} requests at a time"
