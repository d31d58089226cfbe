"""The specs behind a group of one uniform type, before context parallelism judges them."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="unwrap_uniform_specs",
    title="groups of a uniform type are judged by the specs of their layers",
    symbols=(Symbol("v1/core/kv_cache_utils.py", "generate_scheduler_kv_cache_config"),),
    readings=(
        Reading(
            Status.NATIVE,
            "v1/core/kv_cache_utils.py: generate_scheduler_kv_cache_config replaces UniformTypeKVCacheSpecs by a"
            " layer's spec before v1/core/kv_cache_coordinator.py: HybridKVCacheCoordinator asks its type",
            {"0.26.0": "040864e2493ead6a", "0.30.0": "fdd4122d12c95923", "0.31.0": "eff18fb727ed516a"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
)
