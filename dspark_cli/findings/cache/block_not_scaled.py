"""A padded page with room for two blocks and more."""

from collections.abc import Iterator

from dspark_cli.findings.cache.draft_block_below_aligned import BLOCKS_IN_ONES_PLACE, is_below_aligned
from dspark_cli.findings.cache.evidence import COST, LAYOUT_OPTION, CacheEvidence, compare
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "block-not-scaled"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    for group in plan.groups:
        if group.is_state or not group.page_bytes or is_below_aligned(group, plan):
            continue
        times = group.padded_page_bytes // group.page_bytes
        if times >= BLOCKS_IN_ONES_PLACE:
            yield Finding(
                ID,
                Severity.WARNING,
                f"the {group.role} group of {group.kind} has pages of {group.padded_page_bytes:,} bytes with"
                f" {group.page_bytes:,} of content: a block of {times * group.block_tokens:,} tokens would fit, and it"
                f" has {group.block_tokens:,}",
                {
                    "role": group.role,
                    "kind": group.kind,
                    "page_bytes": group.page_bytes,
                    "padded_page_bytes": group.padded_page_bytes,
                    "block_tokens": group.block_tokens,
                    "block_tokens_that_fit": times * group.block_tokens,
                    "blocks_per_sequence": group.blocks_per_sequence,
                    COST: group.blocks_per_sequence * (group.block_bytes - group.useful_block_bytes),
                },
                "vLLM scales a block only where its page divides the largest one; use a drafter whose head size and KV"
                f" heads divide the target's, or another layout ({LAYOUT_OPTION}); {compare(evidence, 'layout')}",
                source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: unify_kv_cache_spec_page_size",
            )
