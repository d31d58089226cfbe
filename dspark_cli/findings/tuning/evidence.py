"""What the checks of a tune look at."""

from dataclasses import dataclass

from dspark_cli.facts.tuning import (
    Checked,
    Drift,
    FailedCandidate,
    LatencyBound,
    Measurement,
    Schedule,
    TuningQuestion,
)
from dspark_cli.tuning.block_length import BlockEffect
from dspark_cli.tuning.verdict import LoadVerdict


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
