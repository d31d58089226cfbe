"""From a recording to the report on it."""

from collections.abc import Sequence
from dataclasses import replace

from dspark_cli.errors import BadInput
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_context import buckets_of
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, counted_in
from dspark_cli.findings.acceptance.check import check_acceptance
from dspark_cli.findings.acceptance.evidence import NO_EXPECTATION, WORTH, AcceptanceEvidence, ExpectedAcceptance
from dspark_cli.profiling.acceptance_report import (
    AcceptanceReport,
    DraftPrice,
    ReplicaAcceptance,
    RestoredAcceptance,
)


def report_on(
    recording: Recording,
    expected: ExpectedAcceptance | None = None,
    worth: float = WORTH,
    no_expectation: str = NO_EXPECTATION,
) -> AcceptanceReport:
    """The profile of all engines of `recording` together, and what it means; `no_expectation` says why there is none.

    Raises:
        BadInput: it holds several models, whose acceptance has nothing in common.
    """
    if len(recording.models) > 1:
        names = ", ".join(name or "(unnamed)" for name in recording.models)
        raise BadInput(f"several models are counted here: {names}", "choose one: --model NAME")
    profile, traffic = profile_of(recording.counted), recording.traffic
    checked = check_acceptance(
        AcceptanceEvidence(
            profile,
            recording.speculates,
            traffic,
            expected,
            no_expectation,
            worth,
            contexts=recording.draft_contexts,
        )
    )
    return AcceptanceReport(
        recording=recording,
        model=recording.models[0] if recording.models else "",
        profile=profile,
        since_start=profile_of(counted_in(recording.since_start)),
        prefix_hit_rate=traffic.prefix_hit_rate,
        external_hit_rate=traffic.external_hit_rate,
        preemptions=traffic.preemptions,
        price=_price(profile),
        replicas=tuple(_replica(part) for part in recording.parts) if len(recording.parts) > 1 else (),
        findings=checked.findings,
        not_checked=checked.not_checked,
        by_restored=tuple(
            RestoredAcceptance(bucket.name, bucket.restored_from, bucket.restored_to, profile_by_restored)
            for bucket in buckets_of(recording.draft_contexts)
            if (profile_by_restored := profile_of(bucket.counted)) is not None
        ),
    )


def of_model(recording: Recording, model: str) -> Recording:
    """The part of `recording` that is of `model`.

    Raises:
        BadInput: nothing is.
    """
    kept = _of(recording.parts, model)
    if not kept:
        names = ", ".join(name or "(unnamed)" for name in recording.models)
        raise BadInput(f"nothing is counted of the model {model!r}", f"choose one of: {names}")
    same = len(kept) == len(recording.parts)
    return replace(
        recording,
        parts=kept,
        since_start=_of(recording.since_start, model),
        trend=recording.trend if same else (),
        draft_contexts=tuple(
            server for server in recording.draft_contexts if server.where in {part.where for part in kept}
        ),
    )


def profile_of(counted: DraftCounters) -> AcceptanceProfile | None:
    return AcceptanceProfile.of(counted) if counted.drafts > 0 else None


def _of(parts: Sequence[EnginePart], model: str) -> tuple[EnginePart, ...]:
    return tuple(part for part in parts if part.model == model)


def _price(profile: AcceptanceProfile | None) -> DraftPrice | None:
    if profile is None:
        return None
    return DraftPrice(
        drafted=profile.draft_tokens,
        used=profile.accepted,
        unused=profile.draft_tokens - profile.accepted,
        steps_per_1000_tokens=1000 / profile.mean_acceptance_length,
    )


def _replica(part: EnginePart) -> ReplicaAcceptance:
    return ReplicaAcceptance(
        part.where, part.model, part.engine, profile_of(part.counted), part.traffic.prefix_hit_rate
    )
