"""Draft layers in KV cache groups of their own, so that they do not set the width of the target's groups."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="draft_groups_apart",
    title="draft layers are grouped apart from the target before page unification",
    symbols=(
        Symbol("v1/core/kv_cache_utils.py", "get_kv_cache_groups"),
        Symbol("v1/core/kv_cache_utils.py", "_get_kv_cache_groups_uniform_page_size"),
        Symbol("v1/core/kv_cache_utils.py", "_get_packed_kv_cache_groups"),
        Symbol("v1/core/kv_cache_planning.py", "get_kv_cache_groups"),
        Symbol("v1/core/kv_cache_planning.py", "_get_kv_cache_groups_uniform_page_size"),
        Symbol("v1/core/kv_cache_planning.py", "_get_packed_kv_cache_groups"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "v1/core/kv_cache_utils.py: get_kv_cache_groups never asks whose a layer is; the width of all groups"
            " comes from _get_kv_cache_groups_uniform_page_size: min_num_layers, the smallest bucket of like layers,"
            " the drafter's too",
            {"0.26.0": "ff13cf741bf60d15", "0.27.0": "7d27917ee03667e0", "0.28.0": "02831aa7b4b86756"},
        ),
        Reading(
            Status.UNSUPPORTED,
            "v1/core/kv_cache_utils.py: as before for layer-outermost layouts (min_num_layers over all buckets);"
            " block-outermost ones go through _get_packed_kv_cache_groups, which buckets by type and block and does"
            " not ask whose a layer is either",
            {
                "0.29.0": "8c20be8ec862a847",
                "0.30.0": "4b317cdccadca0f3",
                "0.31.0": "dbc263cf6dafbe80",
                "0.32.0": "420c5c3da1fb4bc0",
            },
        ),
        Reading(
            Status.UNSUPPORTED,
            "v1/core/kv_cache_planning.py: get_kv_cache_groups as before; KVCacheSpec.is_draft is there and does not"
            " count in comparisons (compare=False): it only marks groups. KVCacheConfigBuilder, through which a"
            " platform could group otherwise, calls itself experimental",
            {"0.33.0": "0d134de2dda6e990"},
        ),
    ),
    references=(
        "local-inference-lab/vllm#529",
        "vllm-project/vllm#50169",
        "vllm-project/vllm#51742",
        "vllm-project/vllm#49472",
    ),
    warned_by="inspect-cache: group-explosion",
)
