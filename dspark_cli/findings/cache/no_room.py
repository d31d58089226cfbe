"""The memory does not hold one sequence of the full length; vLLM will not start."""

from collections.abc import Iterator

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.findings.cache.evidence import CacheEvidence, gib
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "no-room-for-one-sequence"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if plan.memory_bytes is None:
        yield NotChecked(ID, "no memory size was given")
        return
    if plan.largest_length is None:
        return
    needed = plan.blocks_per_sequence * plan.pool_bytes_per_block
    largest = plan.largest_length
    yield Finding(
        ID,
        Severity.ERROR,
        f"one sequence of {plan.max_model_len:,} tokens takes {gib(needed)} of KV cache and there are"
        f" {gib(plan.memory_bytes)}: "
        + (f"{largest:,} tokens fit" if largest else "not even a short one fits")
        + _why_capacity_is_more(plan),
        {
            "max_model_len": plan.max_model_len,
            "largest_length": largest,
            "needed_bytes": needed,
            "memory_bytes": plan.memory_bytes,
        },
        (f"--max-model-len {largest}, or " if largest else "")
        + "more memory for the KV cache: --gpu-memory-utilization, --kv-cache-memory-bytes, --kv-cache-dtype fp8 or"
        " more ranks",
        source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: _check_enough_kv_cache_memory",
    )


def _why_capacity_is_more(plan: CachePlan) -> str:
    """KV tokens count parts of a full sequence, as if each of its tokens took as much."""
    kept = any(group.is_state or group.window is not None for group in plan.groups)
    if not kept or not plan.kv_tokens or not plan.largest_length or plan.kv_tokens <= plan.largest_length:
        return ""
    return (
        f" (the {plan.kv_tokens:,} KV tokens are a share of a full sequence: blocks for windows and states are kept"
        " for each sequence, so a shorter one does not take proportionally less)"
    )
