"""A state for every token that is drafted: what speculation costs a model with recurrent layers."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.findings.cache.evidence import COST, NOTICEABLE_SHARE, CacheEvidence, compare, counted, gib, share_of
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "states-for-drafts"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    states = [group for group in plan.groups if group.is_state]
    drafted = plan.policy.draft_tokens
    if not states or not drafted:
        return
    spent = where_bytes_go(plan)
    share = share_of(spent.spare_states, spent.total)
    if share < NOTICEABLE_SHARE:
        return
    blocks = max(group.blocks_per_sequence for group in states)
    yield Finding(
        ID,
        Severity.WARNING,
        f"a sequence keeps {counted(blocks, 'state')} in each of {counted(len(states), 'group')} of recurrent layers,"
        f" for each of {counted(drafted, 'drafted token')} may be the last one accepted: {gib(spent.spare_states)},"
        f" {share:.0%} of what a full-length sequence takes",
        {
            "states_per_sequence": blocks,
            "state_groups": len(states),
            "draft_tokens": drafted,
            COST: spent.spare_states,
            "share": share,
        },
        f"draft fewer: the last positions are seldom accepted (dspark-tool acceptance shows how seldom);"
        f" {compare(evidence, f'draft.num_speculative_tokens={max(1, drafted // 2)}')}",
        source="vLLM 0.32 and 0.33 kv_cache_interface.py: MambaSpec.max_memory_usage_bytes, num_speculative_blocks",
    )
