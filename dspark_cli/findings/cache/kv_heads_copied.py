"""Ranks that hold the same KV bytes because there are more ranks than KV heads."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import COST, CacheEvidence, compare, counted, described, gib, share_of
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "kv-heads-copied"
LATENT = "MLA"
"""In the name of every kind of latent attention. A drafter of another kind is replicated under context parallelism."""


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    copied = [group for group in plan.groups if group.copies > 1]
    if not copied:
        return
    of_target = [group for group in copied if group.role != "draft"]
    spent = where_bytes_go(plan)
    share = share_of(spent.copies, spent.total)
    yield Finding(
        ID,
        Severity.WARNING if of_target else Severity.INFO,
        f"{plan.policy.tensor_parallel} ranks are more than there are KV heads, so {share:.0%} of a full sequence's"
        f" bytes ({gib(spent.copies)}) are copies of what another rank holds: {_where(copied)}",
        {
            "tensor_parallel": plan.policy.tensor_parallel,
            "decode_context_parallel": plan.policy.decode_context_parallel,
            "copies": max(group.copies for group in copied),
            "copied_groups": len(copied),
            "groups": len(plan.groups),
            COST: spent.copies,
            "share": share,
            "target_copied": bool(of_target),
        },
        _advice(evidence, of_target) if of_target else "nothing to do: a drafter beside a sharded target is small",
        source="vLLM kv_cache_utils.py / kv_cache_planning.py: _layer_tp_replicas; config/model.py:"
        " verify_with_parallel_config",
    )


def _where(copied: list[KVCacheGroup]) -> str:
    """Groups by kind; a group's copies are those of the layer with most."""
    kinds: dict[tuple[str, int], int] = {}
    for group in copied:
        kind = described(group), group.copies
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(
        f"{counted(groups, 'group')} of {kind} on up to {copies} ranks" for (kind, copies), groups in kinds.items()
    )


def _advice(evidence: CacheEvidence, of_target: list[KVCacheGroup]) -> str:
    plan = evidence.plan
    if any(group.window is not None and group.role != "draft" for group in plan.groups):
        return (
            "nothing to do with this many ranks: windows of the target rule out decode context parallelism, which"
            " would shard tokens in place of heads"
        )
    ranks = plan.policy.decode_context_parallel * max(group.copies for group in of_target)
    draft = "; the drafter has no latent attention, so it is replicated there and may take back what is won"
    return (
        "context parallelism shards tokens in place of heads;"
        f" {compare(evidence, f'decode-context-parallel-size={ranks}')}"
        + (draft if has_a_drafter_to_replicate(plan) else "")
    )


def has_a_drafter_to_replicate(plan: CachePlan) -> bool:
    kinds = [kind.kind for kind in plan.layer_kinds if kind.role == "draft"]
    # An engine names kinds of groups only: those of a shared group may be the target's.
    kinds = kinds or [kind for group in plan.groups if group.draft_layers for kind in group.kind.split("+")]
    return any(LATENT not in kind for kind in kinds)
