"""The report on the draft acceptance of one recording."""

from dataclasses import dataclass

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.recording import Recording
from dspark_cli.findings.finding import Finding, NotChecked


@dataclass(frozen=True)
class DraftPrice:
    """What the drafts cost and yield. A decode step is one pass of the target over a request."""

    drafted: int
    used: int
    unused: int
    steps_per_1000_tokens: float
    """1,000 / mean acceptance length."""


@dataclass(frozen=True)
class ReplicaAcceptance:
    """One engine's own profile; None where it made no draft step."""

    where: str
    model: str
    engine: str
    profile: AcceptanceProfile | None
    prefix_hit_rate: float | None


@dataclass(frozen=True)
class RestoredAcceptance:
    """The profile of requests with `restored_from` to `restored_to` restored tokens, the end not included."""

    name: str
    restored_from: int
    restored_to: int | None
    profile: AcceptanceProfile


@dataclass(frozen=True)
class AcceptanceReport:
    """`profile` is of all engines together, over the recording's span; None where no draft step was counted."""

    recording: Recording
    """The counts themselves: a saved report is read again from these."""
    model: str
    profile: AcceptanceProfile | None
    since_start: AcceptanceProfile | None
    """Beside a window, the same since server start."""
    prefix_hit_rate: float | None
    external_hit_rate: float | None
    preemptions: int | None
    price: DraftPrice | None
    replicas: tuple[ReplicaAcceptance, ...]
    """Each engine, where there are several."""
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    by_restored: tuple[RestoredAcceptance, ...] = ()
    """Where a draft step was counted, of servers that count by restored tokens."""
