"""What an experiment on a running server found: requests in phases that differ in how much of a prompt is restored."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.recording import Recording


class PhaseKind(StrEnum):
    COLD = "cold"
    """Nothing is restored."""
    SHORT = "short"
    """The ends of the same prompts, cold."""
    RESTORED = "restored"
    """The first part of each prompt, or all of it, was served before."""


@dataclass(frozen=True)
class ProbedRequest:
    """One answered request. Where the server does not tell them, draft steps are its chunks: the first one's tokens
    come from the prefill, each later one is a step."""

    prompt: int
    """Which prompt: the same in every phase."""
    ttft_s: float
    seconds: float
    prompt_tokens: int
    output_tokens: int
    draft_steps: int
    accepted: int
    """Draft tokens accepted; from chunks, those that reached the answer, whose end may cut the last step."""
    cached_tokens: int | None = None
    """As the server says it in the answer, which it does with --enable-prompt-tokens-details only."""
    told: bool = False
    """Whether the server told steps and accepted tokens, as it does with --per-request-spec-decode-metrics only."""


@dataclass(frozen=True)
class Phase:
    """One round over the prompts. `asked_share` is the part of each prompt that was served before, 0 to 1."""

    name: str
    kind: PhaseKind
    asked_share: float
    seconds: float
    requests: tuple[ProbedRequest, ...]
    failed: tuple[str, ...]
    recording: Recording
    """The server's own counters over the phase."""
    profile: AcceptanceProfile | None
    other_requests: int | None
    """Requests of others that the counters hold too; None where they do not tell."""
    settled: bool
    """Whether the counters came to rest after the phase."""
    steps_merged: float | None
    """Share of the draft steps that came to the probe merged into another's chunk, as counted steps show; None where
    others' requests are among the counters and the server did not tell the steps itself."""

    @property
    def steps_by_prompt(self) -> dict[int, tuple[float, float]]:
        """Accepted tokens and draft steps of each prompt.

        Where chunks tell them, a step merged into another's chunk is missing and its own token looks accepted, and what
        the end of an answer cuts off is missing too. The counters have both for the phase as a whole, so the requests'
        figures are scaled to them.
        """
        merged = self.steps_merged or 0.0
        lost = merged / (1 - merged)
        steps = {request.prompt: request.draft_steps * (1 + lost) for request in self.requests}
        accepted = {
            request.prompt: max(0.0, request.accepted - lost * request.draft_steps) for request in self.requests
        }
        seen = sum(accepted.values())
        told = all(request.told for request in self.requests)
        known = self.other_requests == 0 and self.settled and seen > 0 and not told
        scale = self.recording.counted.accepted / seen if known else 1.0
        return {prompt: (scale * accepted[prompt], steps[prompt]) for prompt in steps}

    @property
    def restarted(self) -> bool:
        """Whether the server was restarted in the phase."""
        return any(part.restarted for part in self.recording.parts)

    @property
    def claims_too_much(self) -> bool:
        """Whether the answers hold more accepted tokens than the server counted: somebody does not tell the truth."""
        claimed = sum(request.accepted for request in self.requests) - (self.steps_merged or 0.0) * self.draft_steps
        counted = self.recording.counted.accepted
        return self.settled and bool(self.recording.parts) and claimed > 1.1 * counted + 10

    @property
    def draft_steps(self) -> int:
        return round(sum(steps for _, steps in self.steps_by_prompt.values()))

    @property
    def accepted(self) -> int:
        return round(sum(accepted for accepted, _ in self.steps_by_prompt.values()))

    @property
    def acceptance_length(self) -> float | None:
        """Of the probe's own requests."""
        return 1 + self.accepted / self.draft_steps if self.draft_steps else None

    @property
    def prompt_tokens(self) -> float:
        """Mean of a request."""
        return fmean(request.prompt_tokens for request in self.requests) if self.requests else 0.0

    @property
    def cached_tokens(self) -> float | None:
        """Tokens restored a request, local hits and those of a connector; None where others' requests are among
        them or nothing tells."""
        told = [request.cached_tokens for request in self.requests if request.cached_tokens is not None]
        if told and len(told) == len(self.requests):
            return fmean(told)
        traffic = self.recording.traffic
        if self.other_requests != 0 or not self.requests or traffic.prefix_hits is None:
            return None
        return (traffic.prefix_hits + (traffic.external_hits or 0)) / len(self.requests)


@dataclass(frozen=True)
class Comparison:
    """Restored against cold, over the same prompts: accepted tokens a draft step, as a ratio with its 95% interval."""

    phase: str
    cached_tokens: float | None
    prompts: int
    cold_length: float
    length: float
    kept: float | None
    """(length - 1) / (cold length - 1): 1 is unharmed, 0 is a drafter that is never right; None where cold accepts
    nothing."""
    kept_low: float | None
    kept_high: float | None


class Verdict(StrEnum):
    HARMLESS = "harmless"
    HARMFUL = "harmful"
    NOT_EXERCISED = "not exercised"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class ProbeVerdict:
    verdict: Verdict
    why: str
    next_step: str


@dataclass(frozen=True)
class ServerFacts:
    """What the server says of itself before the first phase."""

    url: str
    model: str
    engines: tuple[str, ...]
    max_model_len: int | None
    block_tokens: int | None
    kv_tokens: int | None
    prefix_caching: bool | None
    requests_running: int


@dataclass(frozen=True)
class ProbeResult:
    """Everything measured, before it is judged."""

    server: ServerFacts
    prompts: int
    output_tokens: int
    concurrency: int
    seed: int
    freshness: str
    """How a prompt was made new to the prefix cache: cache salt, a line at its start, or the reset endpoint."""
    phases: tuple[Phase, ...]
    interrupted: bool = False
    stopped: str | None = None
    """Why the probe ended itself: requests failed."""
    notes: tuple[str, ...] = field(default_factory=tuple)

    def of_kind(self, kind: PhaseKind) -> list[Phase]:
        return [phase for phase in self.phases if phase.kind is kind]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The `share` quantile (0 to 1), between the two nearest values; None of no values."""
    import numpy as np

    return float(np.quantile(values, share)) if values else None
