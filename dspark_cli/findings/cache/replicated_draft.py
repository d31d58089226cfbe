"""A drafter whose KV every rank holds whole, beside a target whose KV decode context parallelism shards.

vLLM knows such caches since 0.31 (`dcp_sharded` of a cache specification): `DFlashSpeculator` runs a drafter without
latent attention at one rank, and `GPUModelRunner.get_kv_cache_spec` clears the flag of its layers.
"""

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup


def replicated_draft_groups(plan: CachePlan) -> list[KVCacheGroup]:
    """Empty where the target is not sharded either."""
    if plan.policy.decode_context_parallel == 1 or not any(group.sharded for group in plan.groups):
        return []
    return [group for group in plan.groups if group.draft_layers and not group.sharded]


def geometry(plan: CachePlan) -> dict[str, int | float | str | bool | None]:
    """Evidence that every finding about it carries."""
    replicated = replicated_draft_groups(plan)
    return {
        "decode_context_parallel": plan.policy.decode_context_parallel,
        "replicated_draft_groups": len(replicated),
        "draft_layers": sum(group.draft_layers for group in replicated),
    }
