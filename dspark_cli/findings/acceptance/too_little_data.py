"""Nothing was drafted, or too little for a verdict."""

from collections.abc import Iterator

from dspark_cli.findings.acceptance.evidence import FEWEST_DRAFTS, AcceptanceEvidence
from dspark_cli.findings.finding import Finding, Severity

ID = "too-little-data"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding]:
    drafts = evidence.profile.drafts if evidence.profile else 0
    if evidence.enough or not evidence.speculates:
        return
    yield Finding(
        ID,
        Severity.INFO,
        f"{drafts:,} draft steps are too few for a verdict; it takes {FEWEST_DRAFTS}, over several requests",
        {"drafts": drafts, "wanted": FEWEST_DRAFTS},
        "send it requests, or count for longer: --interval SECONDS",
    )
