"""Every check of a KV cache plan."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dspark_cli.findings.cache import (
    block_not_scaled,
    dcp_backend,
    dcp_cascade,
    dcp_draft_sharded,
    dcp_hybrid_manager_off,
    dcp_pipeline_stages,
    dcp_runner_v1,
    dcp_sleep,
    draft_block_below_aligned,
    draft_groups_unflagged,
    draft_layers_split,
    draft_page_largest,
    drafter_shares_groups,
    drafter_splits_groups,
    drafter_trained_shorter,
    group_explosion,
    group_padding,
    kv_heads_copied,
    no_room,
    page_padding,
    spare_states,
    trailing_block_drop,
    window_blocks,
    window_kept_whole,
)
from dspark_cli.findings.cache.evidence import COST, CacheEvidence
from dspark_cli.findings.finding import Finding, NotChecked

__all__ = ["CHECKS", "CacheEvidence", "CheckedCache", "check_cache"]

Check = Callable[[CacheEvidence], Iterator[Finding | NotChecked]]

CHECKS: tuple[Check, ...] = (
    no_room.check,
    draft_layers_split.check,
    dcp_draft_sharded.check,
    dcp_backend.check,
    dcp_pipeline_stages.check,
    dcp_runner_v1.check,
    dcp_hybrid_manager_off.check,
    dcp_cascade.check,
    dcp_sleep.check,
    spare_states.check,
    window_blocks.check,
    window_kept_whole.check,
    page_padding.check,
    group_padding.check,
    draft_block_below_aligned.check,
    block_not_scaled.check,
    draft_page_largest.check,
    kv_heads_copied.check,
    trailing_block_drop.check,
    draft_groups_unflagged.check,
    drafter_trained_shorter.check,
    group_explosion.check,
    drafter_splits_groups.check,
    drafter_shares_groups.check,
)


@dataclass(frozen=True)
class CheckedCache:
    """Findings, the most severe first, then those that cost the most bytes, then in the order of `CHECKS`; and
    what could not be checked."""

    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]


def check_cache(evidence: CacheEvidence) -> CheckedCache:
    """Every check; one whose data is missing says so among `not_checked`."""
    answers = [answer for check in CHECKS for answer in check(evidence)]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return CheckedCache(
        tuple(sorted(findings, key=_worst_first)),
        tuple(answer for answer in answers if isinstance(answer, NotChecked)),
    )


def _worst_first(finding: Finding) -> tuple[int, float]:
    cost = finding.evidence.get(COST)
    return -finding.severity.rank, -cost if isinstance(cost, int | float) else 0
