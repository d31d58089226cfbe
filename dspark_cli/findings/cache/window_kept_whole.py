"""Layers with a window in a group that keeps every token."""

from collections.abc import Iterator

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import CacheEvidence, compare, counted
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "window-kept-whole"
KEEPS_A_WINDOW = ("sliding window", "chunked local")


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    for group in plan.groups:
        if not group.window or group.window >= plan.max_model_len or _keeps_a_window(group):
            continue
        layers = _windowed_layers(plan, group)
        times = plan.max_model_len / group.window
        manager_off = not plan.policy.hybrid_manager
        yield Finding(
            ID,
            Severity.WARNING,
            f"the group of {counted(layers, 'layer') if layers else 'layers'} with a window of {group.window:,} tokens"
            f" keeps all {plan.max_model_len:,} of a full sequence, {times:.0f} times as many: "
            + ("the hybrid KV cache manager is off" if manager_off else "vLLM found no common page for the layers"),
            {
                "window_tokens": group.window,
                "max_model_len": plan.max_model_len,
                "windowed_layers": layers,
                "layers_in_the_group": len(group.layers),
                "hybrid_manager": plan.policy.hybrid_manager,
            },
            "leave out --disable-hybrid-kv-cache-manager; a KV connector without hybrid support turns it off too"
            if manager_off
            else f"VLLM_KV_CACHE_LAYOUT=BLNHC needs no common page; {compare(evidence, 'layout')}",
            source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: unify_hybrid_kv_cache_specs,"
            " _try_get_full_allocation_fallback_groups",
        )


def _keeps_a_window(group: KVCacheGroup) -> bool:
    return any(kind.startswith(KEEPS_A_WINDOW) for kind in group.kind.split("+"))


def _windowed_layers(plan: CachePlan, group: KVCacheGroup) -> int | None:
    """None where the plan does not know layers by themselves."""
    roles = ("target", "draft") if group.role == "shared" else (group.role,)
    return sum(kind.layers for kind in plan.layer_kinds if kind.window is not None and kind.role in roles) or None
