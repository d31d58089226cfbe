"""A drafter whose blocks hold fewer tokens than the target's, each in a place made for the target's."""

from collections.abc import Iterator

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import COST, CacheEvidence, compare, draft_groups, is_packed
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "draft-block-below-aligned"
BLOCKS_IN_ONES_PLACE = 2
"""From here on a larger draft block would fit where the small one lies; below it the block is as large as it can be."""


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    aligned = aligned_block_tokens(plan)
    for group in draft_groups(plan):
        if is_below_aligned(group, plan):
            times = plan.replica_bytes_per_block / group.useful_block_bytes
            takes = plan.replica_bytes_per_block / group.block_tokens
            needs = group.useful_block_bytes / group.block_tokens
            yield Finding(
                ID,
                Severity.WARNING,
                f"the drafter's blocks hold {group.block_tokens:,} tokens where the target's hold {aligned:,}: a draft"
                f" token takes {takes:,.0f} bytes of the pool and needs {needs:,.0f} ({times:.1f} times), and a full"
                f" sequence {group.blocks_per_sequence:,} draft blocks of {plan.blocks_per_sequence:,}",
                {
                    "draft_block_tokens": group.block_tokens,
                    "aligned_block_tokens": aligned,
                    "draft_token_takes_bytes": takes,
                    "draft_token_needs_bytes": needs,
                    "times": times,
                    "draft_blocks_per_sequence": group.blocks_per_sequence,
                    "blocks_per_sequence": plan.blocks_per_sequence,
                    COST: group.blocks_per_sequence * (plan.replica_bytes_per_block - group.useful_block_bytes),
                },
                f"{compare(evidence, f'block-size={aligned}', 'layout')}; a release that gives the drafter the"
                " target's aligned block, or a drafter without sliding layers, has no small blocks",
                source="second seed: 1,029,864 tokens with draft blocks of 16, 5,592,405 with 2,304",
            )


def aligned_block_tokens(plan: CachePlan) -> int:
    return max((group.block_tokens for group in plan.groups if group.role != "draft" and not group.is_state), default=0)


def is_below_aligned(group: KVCacheGroup, plan: CachePlan) -> bool:
    if group.role != "draft" or group.is_state or not group.useful_block_bytes or not group.block_tokens:
        return False
    place, fills = group.padded_page_bytes, group.page_bytes
    if is_packed(plan):
        place, fills = plan.replica_bytes_per_block, group.useful_block_bytes
    return group.block_tokens < aligned_block_tokens(plan) and place >= BLOCKS_IN_ONES_PLACE * fills
