"""Blocks kept beyond a window for tokens in flight: with many batched tokens they outgrow the window."""

from collections.abc import Iterator
from dataclasses import replace

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import (
    COST,
    NOTICEABLE_SHARE,
    CacheEvidence,
    compare,
    counted,
    described,
    gib,
    share_of,
)
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "window-blocks"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    spent = where_bytes_go(plan)
    share = share_of(spent.window_blocks, spent.total)
    if share < NOTICEABLE_SHARE or not any(_has_outgrown(group) for group in plan.groups):
        return
    most = _with_most_beyond(plan)
    bytes_of_most = _bytes_beyond(plan, most)
    layers, beyond = sum(len(group.layers) for group in most), _tokens_beyond(most[0])
    batched = plan.policy.max_batched_tokens
    yield Finding(
        ID,
        Severity.WARNING,
        f"blocks beyond windows take {gib(spent.window_blocks)}, {share:.0%} of a full sequence's bytes;"
        f" {gib(bytes_of_most)} of it are of {counted(layers, 'layer')} of {described(most[0])}, which keep"
        f" {beyond:,} tokens beyond it: up to {batched:,} batched tokens in flight (two batches with async"
        " scheduling), and one block, for a window starts within one",
        {
            "groups": described(most[0]),
            "layers": layers,
            "window_tokens": most[0].window,
            "tokens_beyond": beyond,
            "bytes_beyond": bytes_of_most,
            COST: spent.window_blocks,
            "share": share,
            "max_batched_tokens": batched,
        },
        f"{compare(evidence, f'max-num-batched-tokens={max(batched // 4, 1)}')}; fewer make long prefills slower",
        source="vLLM kv_cache_interface.py:SlidingWindowSpec.max_admission_blocks_per_request",
    )


def _with_most_beyond(plan: CachePlan) -> list[KVCacheGroup]:
    """Groups of one kind: vLLM deals layers of one specification to several."""
    kinds: dict[str, list[KVCacheGroup]] = {}
    for group in plan.groups:
        if group.window is not None and not group.is_state:
            kinds.setdefault(described(group), []).append(group)
    return max(kinds.values(), key=lambda groups: _bytes_beyond(plan, groups))


def _bytes_beyond(plan: CachePlan, groups: list[KVCacheGroup]) -> int:
    return where_bytes_go(replace(plan, groups=tuple(groups))).window_blocks


def _has_outgrown(group: KVCacheGroup) -> bool:
    return _tokens_beyond(group) > (group.useful_tokens_per_sequence or 0)


def _tokens_beyond(group: KVCacheGroup) -> int:
    if group.window is None or group.is_state:
        return 0
    return group.blocks_per_sequence * group.block_tokens - (group.useful_tokens_per_sequence or 0)
