"""There is no drafter."""

from collections.abc import Iterator

from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, Severity

ID = "no-speculation"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding]:
    if evidence.speculates:
        return
    yield Finding(
        ID,
        Severity.ERROR,
        "the server runs without speculative decoding: it has no counters of draft steps",
        {},
        "start it with a drafter: dspark-tool serve MODEL --draft DRAFT",
        confidence=Confidence.CERTAIN,
    )
