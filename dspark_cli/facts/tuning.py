"""What a tune asks, measures and predicts: candidates, their measurements, predictions, and the report on them."""

import math
from dataclasses import dataclass
from statistics import fmean

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.measured_profile import BestCount
from dspark_cli.findings.finding import Finding, NotChecked

Schedule = tuple[tuple[int, int, int], ...]
"""Entries (first batch size, last, tokens) of num_speculative_tokens_per_batch_size."""


@dataclass(frozen=True, order=True)
class Candidate:
    """One server to measure. `tokens` is the number of draft tokens, 0 for no speculation; `also` the value of the one
    more setting, as it was typed, None where there is none or it does not matter."""

    tokens: int
    also: str | None = None

    def __post_init__(self) -> None:
        if self.tokens < 0:
            raise ValueError("a number of draft tokens is 0 or more")

    @property
    def speculates(self) -> bool:
        return self.tokens > 0

    @property
    def name(self) -> str:
        tokens = f"{self.tokens} token{'s' * (self.tokens != 1)}" if self.speculates else "no speculation"
        return tokens if self.also is None else f"{tokens}, {self.also}"


@dataclass(frozen=True)
class Load:
    """What a measurement sends. `prompts` is None where the number follows from the concurrency; `prompt_file` is the
    digest of the user's own prompts."""

    tool: str
    prompts: int | None
    prompt_tokens: int
    output_tokens: int
    seed: int
    prompt_file: str | None = None

    def requests(self, concurrency: int) -> int:
        return self.prompts or max(FEWEST_REQUESTS, WAVES * concurrency)


FEWEST_REQUESTS = 24
WAVES = 4
"""Requests for each that runs at a time: the last wave, which runs out, must not weigh much."""


@dataclass(frozen=True)
class TuningQuestion:
    """What must be the same for two measurements to be of one tune."""

    target: str
    drafter: str
    method: str
    vllm: str
    device: str
    load: Load
    vllm_args: tuple[str, ...]
    also: str | None
    """The key of the one more setting."""
    draft_context: str


@dataclass(frozen=True)
class LatencyBound:
    """In milliseconds; None where there is no bound."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @property
    def given(self) -> bool:
        return self.ttft_ms is not None or self.tpot_ms is not None

    @property
    def words(self) -> str:
        """Such as "TTFT at most 50 ms and TPOT at most 20 ms"; nothing where there is no bound."""
        limits = (("TTFT", self.ttft_ms), ("TPOT", self.tpot_ms))
        return " and ".join(f"{name} at most {limit:g} ms" for name, limit in limits if limit is not None)

    @property
    def unit(self) -> str:
        """Of goodput."""
        return "tokens/s within the bound" if self.given else "tokens/s"

    def met_by(self, request: "AnsweredRequest", tpot_factor: float = 1.0) -> bool:
        """Whether `request`, with its time per output token multiplied by `tpot_factor`, is within the bound."""
        return (self.ttft_ms is None or 1000 * request.ttft_s <= self.ttft_ms) and (
            self.tpot_ms is None or 1000 * request.tpot_s * tpot_factor <= self.tpot_ms
        )


NO_BOUND = LatencyBound()


@dataclass(frozen=True)
class AnsweredRequest:
    """`ttft_s` is the time to the first token, `seconds` that to the last."""

    prompt: int
    ttft_s: float
    seconds: float
    output_tokens: int

    def __post_init__(self) -> None:
        if not (0 <= self.ttft_s <= self.seconds < math.inf and self.output_tokens >= 1):
            raise ValueError("no request can have been answered so")

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first."""
        return (self.seconds - self.ttft_s) / max(1, self.output_tokens - 1)


@dataclass(frozen=True)
class Measurement:
    """One candidate under one load. `seconds` is the time from the first request sent to the last answer."""

    candidate: Candidate
    concurrency: int
    control: bool
    """Whether it repeats an earlier one, at the end: what differs is the machine, not the setting."""
    seconds: float
    requests: tuple[AnsweredRequest, ...]
    failed: int
    counted: DraftCounters
    """The server's own counters over the measurement."""
    prefix_hit_rate: float | None
    other_requests: int | None
    startup_s: float
    measured_at: str
    """UTC, as in 2026-11-30T03:17:52Z."""
    used_by_others: float | None = None
    """Share of the machine's CPU time, 0 to 1."""

    def __post_init__(self) -> None:
        if not (0 < self.seconds < math.inf and self.requests and self.concurrency > 0):
            raise ValueError("no measurement can be so")
        if why := self.counted.implausible():
            raise ValueError(why)

    @property
    def key(self) -> tuple[Candidate, int, bool]:
        return self.candidate, self.concurrency, self.control

    @property
    def tokens_per_s(self) -> float:
        return sum(request.output_tokens for request in self.requests) / self.seconds

    def goodput(self, bound: LatencyBound) -> float:
        """Output tokens a second of the requests that met the bound."""
        return sum(request.output_tokens for request in self.requests if bound.met_by(request)) / self.seconds

    @property
    def draft_steps(self) -> int:
        return self.counted.drafts

    @property
    def acceptance_length(self) -> float:
        """Tokens that a step yields; 1 without speculation."""
        return 1 + self.counted.accepted / self.counted.drafts if self.counted.drafts else 1.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Accepted at each position, of all draft steps."""
        return tuple(accepted / self.counted.drafts for accepted in self.counted.accepted_at if self.counted.drafts)

    @property
    def step_s(self) -> float:
        """Seconds of one step of one request: its decode time over its steps; without speculation a step is a token."""
        decoding = sum(request.seconds - request.ttft_s for request in self.requests)
        steps = self.counted.drafts or sum(request.output_tokens - 1 for request in self.requests)
        return decoding / max(1, steps)

    @property
    def mean_ttft_s(self) -> float:
        return fmean(request.ttft_s for request in self.requests)

    @property
    def mean_output_tokens(self) -> float:
        return fmean(request.output_tokens for request in self.requests)


@dataclass(frozen=True)
class FailedCandidate:
    candidate: Candidate
    cause: str
    next_step: str


@dataclass(frozen=True)
class Prediction:
    """Of one candidate at one concurrency, from measurements of others."""

    candidate: Candidate
    concurrency: int
    tokens_per_s: float
    goodput: float
    acceptance_length: float
    step_s: float


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
class TunedRow:
    """One candidate at one concurrency, as reported. Times are in milliseconds; what was not measured is None."""

    candidate: Candidate
    concurrency: int
    measured: bool
    used_to_predict: bool
    goodput: float | None
    goodput_low: float | None
    goodput_high: float | None
    tokens_per_s: float | None
    within_bound: float | None
    """Share of the requests."""
    predicted: float | None
    """Goodput, from the measurements that are used to predict."""
    foretold: float | None
    """The same without this one's own measurement; None where that is one of the two which all predictions take."""
    prediction_error: float | None
    """foretold / measured - 1."""
    acceptance_length: float | None
    rates: tuple[float, ...]
    draft_steps: int
    step_ms: float | None
    tpot_ms: "Percentiles | None"
    ttft_ms: "Percentiles | None"
    requests: int
    failed: int


@dataclass(frozen=True)
class Percentiles:
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class PredictionQuality:
    """Over measurements, each predicted without itself. Errors are shares of what was measured."""

    checked: int
    mean_error: float | None
    worst_error: float | None
    spared: int
    """Candidates without a run: ruled out, or not reached where the tune ended early."""
    partly: int
    """Candidates that were measured under some loads and not under all."""


@dataclass(frozen=True)
class Drift:
    """The control against the first measurement of the same server: goodput / goodput - 1; where no request of the
    first met the bound, of all tokens."""

    concurrency: int
    change: float

    @property
    def share(self) -> float:
        """How much it changed, whichever of the two is taken as the first; infinite where the second gave nothing."""
        again = 1 + self.change
        return max(again, 1 / again) - 1 if again > 0 else math.inf


@dataclass(frozen=True)
class TuningReport:
    question: TuningQuestion
    bound: LatencyBound
    concurrencies: tuple[int, ...]
    results: str
    """The results file."""
    rows: tuple[TunedRow, ...]
    prediction: PredictionQuality
    drift: tuple[Drift, ...]
    best: tuple[BestCount, ...]
    best_also: str | None
    """The best value of the one more setting, over all loads."""
    schedule: Schedule | None
    failed: tuple[FailedCandidate, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    interrupted: bool
    stopped: str | None
    """Why it ended before its plan."""
    recommend: str
    serve: str | None
    """The command that serves the winner; None where there is none."""
    measured: int
    """Measurements of this run."""
    reused: int
    """Those that the results file had."""
    seconds: float

    @property
    def measured_drafts(self) -> bool:
        """Whether a server that speculates was measured."""
        return any(row.measured and row.candidate.speculates for row in self.rows)
