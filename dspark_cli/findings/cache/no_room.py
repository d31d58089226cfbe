"""The memory does not hold one sequence of the full length; vLLM will not start."""

from collections.abc import Iterator

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
        f" {gib(plan.memory_bytes)}: " + (f"{largest:,} tokens fit" if largest else "not even a short one fits"),
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
