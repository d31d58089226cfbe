"""The drafter's page is the largest, so every layer of the target pays for it."""

from collections.abc import Iterator

from dspark_cli.facts.cache_plan import CachePlan, LayerKind
from dspark_cli.findings.cache.evidence import COST, CacheEvidence, compare, groups_with_target, layout_to_compare
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "draft-page-largest"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if not evidence.has_draft_layers:
        return
    if not plan.layer_kinds:
        yield NotChecked(ID, "a running engine keeps pages only as they are after it made them equal")
        return
    draft, target = (_largest(plan, role) for role in ("draft", "target"))
    if draft is None or target is None or draft.page_bytes <= target.page_bytes:
        return
    lost = sum(
        group.blocks_per_sequence * (plan.replica_bytes_per_block - group.useful_block_bytes)
        for group in groups_with_target(plan)
    )
    block = max((group.block_tokens for group in groups_with_target(plan)), default=0)
    if not lost and block == target.block_tokens:
        return
    yield Finding(
        ID,
        Severity.WARNING if lost else Severity.INFO,
        f"the drafter's page of {draft.page_bytes:,} bytes is the largest (the target's: {target.page_bytes:,}) and"
        + (
            f" leaves {lost:,} bytes of a full sequence's target blocks empty"
            if lost
            else f" makes the target's blocks {block:,} tokens long in place of {target.block_tokens:,}"
        ),
        {
            "draft_page_bytes": draft.page_bytes,
            "target_page_bytes": target.page_bytes,
            "draft_block_tokens": draft.block_tokens,
            "target_block_tokens": target.block_tokens,
            "target_block_tokens_planned": block,
            COST: lost,
        },
        compare(
            evidence,
            f"tensor-parallel-size={2 * plan.policy.tensor_parallel}",
            "draft.kv_cache_dtype=fp8",
            *layout_to_compare(plan),
        ),
        source="second seed: 9.00 MiB with one rank, 8 KV heads of 128, bf16 and 2,304 tokens",
    )


def _largest(plan: CachePlan, role: str) -> LayerKind | None:
    return max((kind for kind in plan.layer_kinds if kind.role == role), key=lambda kind: kind.page_bytes, default=None)
