"""Memory and capacity of a draft cache that every context parallel rank holds whole."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="dcp_sizing",
    title="a replicated draft is sized whole, a sharded target by its share, under context parallelism",
    symbols=(
        Symbol("v1/kv_cache_interface.py", "AttentionSpec.max_num_blocks_per_req"),
        Symbol("v1/kv_cache_interface.py", "FullAttentionSpec.max_memory_usage_bytes"),
        Symbol("v1/kv_cache_interface.py", "SlidingWindowSpec.max_memory_usage_bytes"),
        Symbol("v1/core/single_type_kv_cache_manager.py", "SingleTypeKVCacheManager.__init__"),
        Symbol("v1/core/kv_cache_utils.py", "resolve_dcp_kv_block_size"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "v1/kv_cache_interface.py: FullAttentionSpec.max_memory_usage_bytes divides every layer by the context"
            " parallel size, the drafter's too; SlidingWindowSpec.max_memory_usage_bytes refuses sliding drafters"
            " (assert)",
            {
                "0.26.0": "de0d8d9e34f29752",
                "0.27.0": "f91c13000d1b6c57",
                "0.28.0": "c6f35c1541e270d8",
                "0.29.0": "33c3625bb120cadb",
                "0.30.0": "d86a8e4c86798265",
            },
        ),
        Reading(
            Status.NATIVE,
            "v1/kv_cache_interface.py: FullAttentionSpec.max_memory_usage_bytes, max_num_blocks_per_req and"
            " v1/core/single_type_kv_cache_manager.py: SingleTypeKVCacheManager.__init__ divide only where"
            " dcp_sharded",
            {"0.31.0": "b3e1f470278f5f2b"},
        ),
    ),
    references=(
        "vllm-project/vllm#48392",
        "local-inference-lab/vllm#529",
    ),
    warned_by="inspect-cache: dcp-draft-sharded",
)
