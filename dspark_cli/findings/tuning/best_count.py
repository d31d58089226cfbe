"""Which numbers of tokens cannot be told from the best."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.findings.tuning.evidence import TuningEvidence, at_a_time

ID = "as-good-as-the-best"


def check(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    for verdict in evidence.verdicts:
        if not verdict.as_good or not verdict.best.goodput(evidence.bound):
            continue
        fewest = min(verdict.as_good)
        best = verdict.best.candidate.tokens
        said = ", ".join(map(str, verdict.as_good))
        fewer = f"--tokens {fewest} drafts and verifies fewer for the same" if fewest < best else "keep the best"
        yield Finding(
            ID,
            Severity.INFO,
            f"with {at_a_time(verdict.concurrency)}, {best} is the best measured number of tokens, and {said} cannot "
            "be told from it",
            {"concurrency": verdict.concurrency, "best": best, "as_good": said},
            f"{fewer}; more --prompts would tell them apart",
        )
