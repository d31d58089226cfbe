"""Much of what was restored had stale draft context, and was hidden: the drafts are safe, and something makes it so."""

from collections.abc import Iterator

from dspark_cli.facts.draft_context import VALIDITY, ContextCounters
from dspark_cli.findings.acceptance.evidence import LASTING_CURE, AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "stale-context-hidden"
FEWEST_TOKENS = 1_000
MUCH = 0.1
"""Share of the restored tokens; less is the partial block at the end of a hit."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    """Only where tokens are checked one by one: the other policies hide all, or nothing, whatever it holds."""
    checked = [server.context for server in evidence.contexts if server.context.policy == VALIDITY]
    counted = sum((context.counters for context in checked), ContextCounters())
    restored, hidden = counted.restored_tokens, counted.hidden_tokens + counted.zeroed_tokens
    if restored < FEWEST_TOKENS or hidden < MUCH * restored:
        return
    yield Finding(
        ID,
        Severity.INFO,
        f"draft context of {hidden:,} of {restored:,} restored tokens was stale and hidden from the drafter "
        f"({min(1.0, hidden / restored):.0%}): no draft is made from it, and the drafter sees that much less",
        {
            "restored_tokens": restored,
            "valid_tokens": counted.valid_tokens,
            "hidden_tokens": counted.hidden_tokens,
            "zeroed_tokens": counted.zeroed_tokens,
            "admissions": counted.admissions,
        },
        "find what restores the target's KV without the drafter's: a KV connector, a prefill node without the drafter, "
        f"or requests beyond the drafter's max_model_len beside others (Runner V1); {LASTING_CURE}. Expected after a "
        "restart where a KV store kept its blocks, for the new process trusts no row that it did not write, and with a "
        "tier more than 15 times as large as the GPU's cache (VLLM_DSPARK_REMEMBERED_CACHEFULS)",
        source="fingerprints of the draft cache's rows, taken when they are written and at each request's admission",
        confidence=Confidence.CERTAIN,
    )
