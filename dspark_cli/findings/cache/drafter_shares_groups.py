"""Draft layers in the target's own groups: the cheapest place there is, unless they make blocks wider than others."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.findings.cache.evidence import COST, CacheEvidence, compare, gib, share_of
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "drafter-shares-groups"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    shared = [group for group in evidence.plan.groups if group.role == "shared"]
    if not shared:
        return
    layers, of_draft = sum(len(group.layers) for group in shared), sum(group.draft_layers for group in shared)
    padding = _padding(evidence.plan)
    if evidence.alone is not None:
        padding = max(padding - _padding(evidence.alone), 0)
    share = share_of(padding, where_bytes_go(evidence.plan).total)
    yield Finding(
        ID,
        Severity.INFO,
        f"{of_draft} of the {layers} layers in the target's groups are the drafter's: they share block tables and"
        f" cost their own bytes{_and_padding(padding, share, evidence.alone is not None)};"
        " what the scheduler does to the drafter's blocks it does to the target's too",
        {"shared_groups": len(shared), "draft_layers": of_draft, "layers": layers, COST: padding, "share": share},
        f"nothing to do; {compare(evidence, 'no-drafter')}",
        source="vLLM 0.32 kv_cache_utils.py:get_kv_cache_groups",
    )


def _padding(plan: CachePlan) -> int:
    spent = where_bytes_go(plan)
    return spent.page_padding + spent.group_padding


def _and_padding(padding: int, share: float, is_the_drafters: bool) -> str:
    """Of a sequence of the full length. An engine does not say how much there would be without the drafter."""
    if not padding:
        return ", nothing more"
    cost = f"{gib(padding)} a full sequence, {share:.1%} of its bytes"
    return f" and more padding: {cost}" if is_the_drafters else f", and there is padding (with or without it): {cost}"
