"""Ranks that hold the same KV bytes because there are more ranks than KV heads."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "kv-heads-copied"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    copied = [group for group in plan.groups if group.copies > 1]
    if not copied:
        return
    worst = max(copied, key=lambda group: group.copies)
    of_target = [group for group in copied if group.role != "draft"]
    spent = where_bytes_go(plan)
    whose = "the drafter's" if not of_target else "the target's" if all(g.role == "target" for g in copied) else "all"
    yield Finding(
        ID,
        Severity.WARNING if of_target else Severity.INFO,
        f"{worst.copies} ranks hold the same bytes of {whose} KV: {plan.policy.tensor_parallel} ranks are more than"
        f" there are KV heads; {spent.copies / spent.total:.0%} of a sequence's bytes are copies",
        {
            "tensor_parallel": plan.policy.tensor_parallel,
            "decode_context_parallel": plan.policy.decode_context_parallel,
            "copies": worst.copies,
            "share": spent.copies / spent.total,
            "target_copied": bool(of_target),
        },
        _advice(plan, worst) if of_target else "nothing to do: a drafter beside a sharded target is small",
        source="vLLM kv_cache_utils.py / kv_cache_planning.py: _layer_tp_replicas; config/model.py:"
        " verify_with_parallel_config",
    )


def _advice(plan: CachePlan, worst: KVCacheGroup) -> str:
    fewer = f"--what-if tensor-parallel-size={max(plan.policy.tensor_parallel // worst.copies, 1)}"
    if any(group.window is not None and group.role != "draft" for group in plan.groups):
        return f"compare: {fewer}; windows of the target rule out decode context parallelism"
    context = plan.policy.decode_context_parallel * worst.copies
    return f"compare: --what-if decode-context-parallel-size={context} (shards tokens instead) {fewer}"
