"""Ranks of one engine must hide the same tokens: their heads are parts of one attention."""

from collections.abc import Iterator

from dspark_cli.facts.draft_context import WorkerContext
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "draft-context-ranks-differ"
MOST_SHOWN = 8


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    for server in evidence.contexts:
        differing = server.context.differing
        if not differing:
            continue
        more = f"; and {len(differing) - MOST_SHOWN} more" if len(differing) > MOST_SHOWN else ""
        yield Finding(
            ID,
            Severity.ERROR,
            f"ranks of one engine of {server.where} treat restored tokens differently: "
            f"{'; '.join(map(_said, differing[:MOST_SHOWN]))}{more}",
            {"ranks": len(differing)},
            "report it, with this line; until it is mended, serve without the patched draft context",
            source="all ranks of an engine admit the same requests",
            confidence=Confidence.CERTAIN,
        )


def _said(worker: WorkerContext) -> str:
    counted = worker.counters
    state = f"{worker.policy}, {'active' if worker.active else 'not active'}"
    return (
        f"{worker.name} ({state}) restored {counted.restored_tokens:,}, valid {counted.valid_tokens:,}, "
        f"hidden {counted.hidden_tokens:,}, zeroed {counted.zeroed_tokens:,}"
    )
