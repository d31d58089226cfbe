"""Draft layers in the target's own groups: the cheapest place there is."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "drafter-shares-groups"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    shared = [group for group in evidence.plan.groups if group.role == "shared"]
    if not shared:
        return
    layers, of_draft = sum(len(group.layers) for group in shared), sum(group.draft_layers for group in shared)
    padded = any(group.block_bytes > group.useful_block_bytes for group in shared)
    yield Finding(
        ID,
        Severity.INFO,
        f"{of_draft} of the {layers} layers in the target's groups are the drafter's: they share block tables and"
        f" cost {'their padded pages' if padded else 'their own bytes, nothing more'};"
        " what the scheduler does to the drafter's blocks it does to the target's too",
        {"shared_groups": len(shared), "draft_layers": of_draft, "layers": layers, "padded": padded},
        "nothing to do; compare: --what-if no-drafter",
        source="vLLM 0.32 kv_cache_utils.py:get_kv_cache_groups",
    )
