"""What a finished tune says of one target with one drafter: the best number of draft tokens by load."""

import math
from dataclasses import dataclass

LARGEST_COUNT = 1 << 20


@dataclass(frozen=True)
class BestCount:
    """At `concurrency` requests at a time. Goodput is output tokens a second of requests within the latency bound."""

    concurrency: int
    tokens: int
    """0 where no speculation is best."""
    goodput: float
    goodput_without_speculation: float | None
    """None where that could not be measured."""
    certain: bool
    """Whether the measurements tell `tokens` from no speculation (or, where it is 0, no speculation from the best
    number of tokens)."""

    def __post_init__(self) -> None:
        figures = (self.goodput, self.goodput_without_speculation or 0.0)
        if not (1 <= self.concurrency < LARGEST_COUNT and 0 <= self.tokens < LARGEST_COUNT):
            raise ValueError("no count can be so")
        if not all(0 <= figure < math.inf for figure in figures):
            raise ValueError("no goodput can be so")


@dataclass(frozen=True)
class MeasuredProfile:
    """`schedule` is for num_speculative_tokens_per_batch_size: entries (first batch size, last, tokens)."""

    target: str
    drafter: str
    vllm: str
    device: str
    measured_on: str
    """The day, as in 2026-11-30."""
    best: tuple[BestCount, ...]
    """Of the loads at which a request met the bound."""
    schedule: tuple[tuple[int, int, int], ...] | None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    """The latency bound within which goodput was counted; None where there was none."""

    def __post_init__(self) -> None:
        for first, last, tokens in self.schedule or ():
            if not (1 <= first <= last < LARGEST_COUNT and 0 <= tokens < LARGEST_COUNT):
                raise ValueError("no entry of a schedule can be so")
