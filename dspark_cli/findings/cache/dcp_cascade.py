"""Cascade attention under context parallelism with a replicated draft.

It was an option of Model Runner V1 up to 0.31 (off unless --no-disable-cascade-attn) and is gone since 0.32.
"""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.replicated_draft import replicated_draft_groups
from dspark_cli.findings.finding import Finding, NotChecked

ID = "dcp-cascade"
GONE_SINCE = "0.32"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    if not replicated_draft_groups(evidence.plan) or evidence.release_is_at_least(GONE_SINCE):
        return
    yield NotChecked(ID, f"a plan does not say whether cascade attention is on; vLLM {GONE_SINCE} has none")
