"""What the trailing block that is dropped for the drafter costs a request with a prefix hit."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.trailing_block_rule import (
    NOTICEABLE_TOKENS,
    TrailingBlock,
    dropping_groups,
    drops_blocks,
    trailing_block,
)
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "trailing-block-drop"
AVOIDABLE_SINCE = "0.30"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if not drops_blocks(plan):
        return
    lost = trailing_block(plan, dropping_groups(plan))
    if lost is None:
        yield NotChecked(ID, "this vLLM does not say where prefix hits end")
        return
    yield Finding(
        ID,
        Severity.WARNING if lost.on_average >= NOTICEABLE_TOKENS else Severity.INFO,
        _what(lost),
        {
            "unit_tokens": lost.unit,
            "dropped_block_tokens": lost.dropped,
            "lost_tokens_on_average": lost.on_average,
            "lost_tokens_at_most": lost.at_most,
        },
        _advice(evidence.release_is_at_least(AVOIDABLE_SINCE)),
        source="fourth seed; vLLM 0.32 and 0.33 kv_cache_coordinator.py:find_longest_cache_hit",
    )


def _what(lost: TrailingBlock) -> str:
    if lost.every_time:
        return f"every prefix hit gives up its last {lost.unit:,} tokens for the drafter's sake, to be computed again"
    return (
        f"a prefix hit gives up {lost.unit:,} tokens for the drafter's sake where the shared prefix ends less than"
        f" {lost.dropped:,} tokens after a multiple of {lost.unit:,}: {lost.on_average:,} tokens a hit on average"
    )


def _advice(can_keep: bool | None) -> str:
    keep = 'put "disable_eagle_block_drop": true into --speculative-config to keep them'
    checked = "; the drafts may differ, so compare acceptance: dspark-tool acceptance"
    return f"with vLLM {AVOIDABLE_SINCE} or later, {keep}{checked}" if can_keep is False else f"{keep}{checked}"
