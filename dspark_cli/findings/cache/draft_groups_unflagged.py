"""No group is marked as the drafter's, so all of them give up the trailing block of a prefix hit.

Where the drafter's block is as long as any, marks save nothing; what is lost is then said by `trailing_block_drop`,
and so is a release that does not tell."""

from collections.abc import Iterator

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.trailing_block_rule import (
    NOTICEABLE_TOKENS,
    dropping_groups,
    drops_blocks,
    trailing_block,
)
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "draft-groups-unflagged"
FLAGGED_SINCE = "0.33"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if not drops_blocks(plan) or len(plan.groups) < 2 or any(group.draft_flag for group in plan.groups):
        return
    now = _average(plan, dropping_groups(plan))
    if_flagged = _average(plan, [group for group in plan.groups if group.draft_layers])
    if now is None or if_flagged is None or if_flagged >= now:
        return
    yield Finding(
        ID,
        Severity.WARNING if now - if_flagged >= NOTICEABLE_TOKENS else Severity.INFO,
        f"none of {len(plan.groups)} groups is marked as the drafter's, so all of them give up the trailing block of a"
        f" prefix hit: {now:,} tokens a hit on average, {if_flagged:,} if marked",
        {
            "groups": len(plan.groups),
            "state_groups": sum(group.is_state for group in plan.groups),
            "lost_tokens_on_average": now,
            "lost_tokens_if_flagged": if_flagged,
        },
        '"disable_eagle_block_drop": true in --speculative-config drops none (compare acceptance: dspark-tool'
        f" acceptance); vLLM {FLAGGED_SINCE} marks the groups",
        FLAGGED_SINCE,
        "vLLM 0.32 kv_cache_coordinator.py:KVCacheCoordinator.__init__, kv_cache_utils.py:_annotate_eagle_groups;"
        " 0.33 kv_cache_planning.py:get_global_kv_cache_groups",
    )


def _average(plan: CachePlan, dropping: list[KVCacheGroup]) -> int | None:
    lost = trailing_block(plan, dropping)
    return lost.on_average if lost else None
