"""What makes measurements doubtful: a machine that varied, restored prefixes, requests of others, failures."""

from collections.abc import Iterator

from dspark_cli.facts.tuning import FailedCandidate
from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.findings.tuning.evidence import TuningEvidence, at_a_time

DRIFT, BUSY, HITS, OTHERS, LOST, FAILED = (
    "machine-varied",
    "machine-was-busy",
    "prefixes-were-restored",
    "others-were-served",
    "requests-failed",
    "candidate-failed",
)
DRIFT_FROM = 0.05
BUSY_FROM = 0.15
HITS_FROM = 0.1
IDLE_MACHINE = "run it again when nothing else runs on this machine (another --results file)"


def check(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    yield from _drift(evidence)
    yield from _of_measurements(evidence)
    alike: dict[str, list[FailedCandidate]] = {}
    for failed in evidence.failed:
        alike.setdefault(failed.cause, []).append(failed)
    for cause, all_failed in alike.items():
        first, *others = all_failed
        yield Finding(
            FAILED,
            Severity.WARNING,
            f"{'; '.join(each.candidate.name for each in all_failed)}: {cause}",
            {"tokens": first.candidate.tokens, "also": first.candidate.also, "candidates": len(all_failed)},
            f"{first.next_step}; the same command tries {'them' if others else 'it'} again",
        )


def _drift(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    if not evidence.drifts:
        yield NotChecked(DRIFT, "no speculation was not measured twice, so what the machine varied is not known")
    for drift in evidence.drifts:
        if abs(drift.change) > DRIFT_FROM:
            yield Finding(
                DRIFT,
                Severity.WARNING,
                f"with {at_a_time(drift.concurrency)}, no speculation gave {abs(drift.change):.1%} "
                f"{'more' if drift.change > 0 else 'less'} the second time: the machine varied by that much, and the "
                "intervals are widened by it",
                {"concurrency": drift.concurrency, "change": round(drift.change, 4)},
                IDLE_MACHINE,
            )


def _of_measurements(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    used = [each.used_by_others for each in evidence.measurements if each.used_by_others is not None]
    if evidence.question.load.tool != "builtin":
        yield NotChecked(BUSY, f"what other processes used is not known under a load of {evidence.question.load.tool}")
    if used and max(used) > BUSY_FROM:
        yield Finding(
            BUSY,
            Severity.WARNING,
            f"other processes used {_span(min(used), max(used))} of this machine's CPU time while servers were "
            "measured, so times are theirs too",
            {"least": round(min(used), 4), "most": round(max(used), 4)},
            IDLE_MACHINE,
        )
    hits = [each for each in evidence.measurements if (each.prefix_hit_rate or 0) > HITS_FROM]
    if hits:
        worst = max(hits, key=lambda each: each.prefix_hit_rate or 0)
        yield Finding(
            HITS,
            Severity.WARNING,
            f"{worst.prefix_hit_rate:.0%} of the prompt tokens of one measurement were prefix hits, so times to the "
            "first token are too good",
            {"prefix_hit_rate": round(worst.prefix_hit_rate or 0, 4), "measurements": len(hits)},
            "measure with -- --no-enable-prefix-caching, or with prompts that have less in common",
        )
    others = sum(each.other_requests or 0 for each in evidence.measurements if (each.other_requests or 0) > 0)
    if others and evidence.question.load.tool == "builtin":
        yield Finding(
            OTHERS,
            Severity.WARNING,
            f"the servers counted {others:,} requests of others",
            {"requests": others},
            "see who else sends to 127.0.0.1, and run it again",
        )
    lost = sum(each.failed for each in evidence.measurements)
    if lost:
        yield Finding(
            LOST,
            Severity.WARNING,
            f"{lost:,} requests failed, and are left out",
            {"requests": lost},
            "see the servers' logs; give requests longer: --timeout",
        )


def _span(least: float, most: float) -> str:
    low, high = f"{least:.0%}", f"{most:.0%}"
    return low if low == high else f"{low} to {high}"
