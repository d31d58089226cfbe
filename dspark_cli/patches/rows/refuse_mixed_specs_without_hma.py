"""A sharded target beside a replicated draft while the hybrid KV cache manager is off."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="refuse_mixed_specs_without_hma",
    title="mixed sharded and replicated specs are refused while the hybrid KV cache manager is off",
    symbols=(
        Symbol("v1/kv_cache_interface.py", "AttentionSpec.dcp_sharded"),
        Symbol("v1/core/kv_cache_utils.py", "unify_hybrid_kv_cache_specs"),
        Symbol("v1/core/kv_cache_planning.py", "unify_hybrid_kv_cache_specs"),
        Symbol("v1/core/sched/scheduler.py", "Scheduler._connector_finished"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            "v1/kv_cache_interface.py: AttentionSpec has no dcp_sharded: all specs are sharded alike, there is"
            " nothing to mix",
            {"0.26.0": "79f62d227506d40c", "0.27.0": "f21e1dea7e799f88", "0.30.0": "073c6021d9160580"},
        ),
        Reading(
            Status.UNSUPPORTED,
            "unify_hybrid_kv_cache_specs (v1/core/kv_cache_utils.py, since 0.33 kv_cache_planning.py) promotes both"
            " kinds apart and refuses nothing: two groups, and a connector without hybrid support stops the engine"
            " when its first request ends (v1/core/sched/scheduler.py: Scheduler._connector_finished asserts one"
            " group)",
            {"0.31.0": "3b5e5019efcd73d5", "0.33.0": "514a7ac6299c7f9e"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    warned_by="inspect-cache: dcp-hybrid-manager-off",
)
