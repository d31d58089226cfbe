"""Blocks kept beyond a window for tokens in flight: with many batched tokens they outgrow the window."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import KVCacheGroup
from dspark_cli.findings.cache.evidence import NOTICEABLE_SHARE, CacheEvidence, gib
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "window-blocks"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    spent = where_bytes_go(plan)
    share = spent.window_blocks / spent.total
    outgrown = [group for group in plan.groups if _beyond(group) > (group.useful_tokens_per_sequence or 0)]
    if not outgrown or share < NOTICEABLE_SHARE:
        return
    worst = max(outgrown, key=_beyond)
    batched = plan.policy.max_batched_tokens
    yield Finding(
        ID,
        Severity.WARNING,
        f"a full sequence keeps {_beyond(worst):,} tokens beyond a window of {worst.window:,} for up to {batched:,}"
        f" batched tokens in flight: {gib(spent.window_blocks)}, {share:.0%} of its bytes",
        {
            "window_tokens": worst.window,
            "tokens_beyond": _beyond(worst),
            "bytes_beyond": spent.window_blocks,
            "share": share,
            "max_batched_tokens": batched,
        },
        f"compare: --what-if max-num-batched-tokens={max(batched // 4, 1)}; fewer make long prefills slower",
        source="vLLM kv_cache_interface.py:SlidingWindowSpec.max_admission_blocks_per_request",
    )


def _beyond(group: KVCacheGroup) -> int:
    if group.window is None or group.is_state:
        return 0
    return group.blocks_per_sequence * group.block_tokens - (group.useful_tokens_per_sequence or 0)
