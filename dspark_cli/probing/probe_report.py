"""The probe's report: what was measured, what it means for restored prefixes, and the findings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_counters import NOTHING
from dspark_cli.facts.probe import Comparison, Phase, PhaseKind, ProbeResult, ProbeVerdict, Verdict, percentile
from dspark_cli.facts.traffic import NO_TRAFFIC, Traffic
from dspark_cli.findings.acceptance import collapse
from dspark_cli.findings.acceptance.check import CHECKS_OF_A_PROBE, check_acceptance, worst_first
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, NotChecked
from dspark_cli.probing.comparison import compare, length_interval
from dspark_cli.probing.verdict import judge, restored_against_cold
from dspark_cli.profiling.judge import profile_of


@dataclass(frozen=True)
class PhaseSummary:
    """One phase in figures. Times are seconds, throughput is output tokens a second of all requests together."""

    name: str
    requests: int
    failed: int
    prompt_tokens: float
    cached_tokens: float | None
    hit_rate: float | None
    external_hit_rate: float | None
    draft_steps: int
    acceptance_length: float | None
    length_low: float | None
    length_high: float | None
    """The 95% interval of `acceptance_length`, over requests."""
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    ttft_mean_s: float | None
    output_tokens_per_s: float | None
    requests_per_s: float | None
    other_requests: int | None
    settled: bool


@dataclass(frozen=True)
class ProbeReport:
    verdict: ProbeVerdict
    cold: AcceptanceProfile | None
    restored: AcceptanceProfile | None
    """The server's own counters over all cold and all restored phases."""
    phases: tuple[PhaseSummary, ...]
    comparisons: tuple[Comparison, ...]
    """Each restored phase against the cold ones."""
    long_against_short: Comparison | None
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    result: ProbeResult


def report_on_probe(result: ProbeResult) -> ProbeReport:
    comparisons = restored_against_cold(result)
    length = _long_against_short(result)
    cold, cold_traffic = _counted(result.of_kind(PhaseKind.COLD))
    restored, restored_traffic = _counted(result.of_kind(PhaseKind.RESTORED))
    speculates = bool(result.server.engines)
    verdict = judge(result, comparisons)
    judged = verdict.verdict in (Verdict.HARMLESS, Verdict.HARMFUL)
    checked = check_acceptance(
        AcceptanceEvidence(
            cold,
            speculates,
            cold_traffic,
            restored=comparisons if judged else (),
            long_against_short=length if judged else None,
        ),
        CHECKS_OF_A_PROBE,
    )
    harmful = verdict.verdict is Verdict.HARMFUL
    collapsed = _collapsed(AcceptanceEvidence(restored, speculates, restored_traffic)) if harmful else []
    return ProbeReport(
        verdict=verdict,
        cold=cold,
        restored=restored,
        phases=tuple(summary(phase) for phase in result.phases),
        comparisons=comparisons,
        long_against_short=length,
        findings=worst_first([*checked.findings, *collapsed]),
        not_checked=checked.not_checked,
        result=result,
    )


def _collapsed(restored: AcceptanceEvidence) -> list[Finding]:
    """What the profile of the restored prompts alone shows; the comparison with cold ones has settled the cause."""
    return [
        replace(
            found,
            advice="this is the profile that users of restored prefixes see; collapse-follows-cached-length says why",
            confidence=Confidence.CERTAIN,
        )
        for found in collapse.check(restored)
        if isinstance(found, Finding)
    ]


def _counted(phases: Sequence[Phase]) -> tuple[AcceptanceProfile | None, Traffic]:
    counted = sum((phase.recording.counted for phase in phases), NOTHING)
    return profile_of(counted), sum((phase.recording.traffic for phase in phases), NO_TRAFFIC)


def _long_against_short(result: ProbeResult) -> Comparison | None:
    cold, short = result.of_kind(PhaseKind.COLD), result.of_kind(PhaseKind.SHORT)
    return compare(short, cold[0], result.seed) if cold and short else None


def summary(phase: Phase) -> PhaseSummary:
    low, high = length_interval(phase) or (None, None)
    times = [request.ttft_s for request in phase.requests]
    return PhaseSummary(
        name=phase.name,
        requests=len(phase.requests),
        failed=len(phase.failed),
        prompt_tokens=phase.prompt_tokens,
        cached_tokens=phase.cached_tokens,
        hit_rate=phase.recording.traffic.prefix_hit_rate,
        external_hit_rate=phase.recording.traffic.external_hit_rate,
        draft_steps=phase.draft_steps,
        acceptance_length=phase.acceptance_length,
        length_low=low,
        length_high=high,
        ttft_p50_s=percentile(times, 0.5),
        ttft_p90_s=percentile(times, 0.9),
        ttft_p99_s=percentile(times, 0.99),
        ttft_mean_s=fmean(times) if times else None,
        output_tokens_per_s=_a_second(sum(request.output_tokens for request in phase.requests), phase.seconds),
        requests_per_s=_a_second(len(phase.requests), phase.seconds),
        other_requests=phase.other_requests,
        settled=phase.settled,
    )


def others_seen(phases: Sequence[Phase]) -> int:
    """Requests of others over all `phases`, as far as the counters tell."""
    return sum(max(0, phase.other_requests or 0) for phase in phases)


def _a_second(count: int, seconds: float) -> float | None:
    return count / seconds if count and seconds > 0 else None
