"""Blocks of the pool that a group with fewer bytes does not fill."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.findings.cache.evidence import (
    COST,
    LAYOUT_OPTION,
    NOTICEABLE_SHARE,
    WIDTH_IS_HYPOTHETICAL,
    CacheEvidence,
    compare,
    gib,
    share_of,
)
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "group-padding"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    spent = where_bytes_go(plan)
    share = share_of(spent.group_padding, spent.total)
    if share < NOTICEABLE_SHARE:
        return
    block = plan.replica_bytes_per_block
    worst = max(plan.groups, key=lambda group: group.blocks_per_sequence * (block - group.block_bytes))
    yield Finding(
        ID,
        Severity.WARNING,
        f"{share:.0%} of a full sequence's bytes ({gib(spent.group_padding)}) are ends of blocks that a narrow group"
        f" leaves empty: the {worst.role} group of {len(worst.layers)} layers fills {worst.block_bytes:,} bytes of a"
        f" block's {block:,}",
        {
            "share": share,
            COST: spent.group_padding,
            "sequence_bytes": spent.total,
            "group_block_bytes": worst.block_bytes,
            "pool_bytes_per_block": block,
            "narrow_role": worst.role,
            "narrow_layers": len(worst.layers),
        },
        f"{compare(evidence, 'group-width', 'layout')}; {LAYOUT_OPTION}, and {WIDTH_IS_HYPOTHETICAL}",
        source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: _pool_bytes_per_block",
    )
