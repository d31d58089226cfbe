"""Cache specs that know a drafter whose KV every context parallel rank holds whole."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="dcp_specs",
    title="cache specs and their merges tell a replicated draft from a sharded target under context parallelism",
    symbols=(
        Symbol("v1/kv_cache_interface.py", "AttentionSpec.dcp_sharded"),
        Symbol("v1/kv_cache_interface.py", "FullAttentionSpec.merge"),
        Symbol("v1/kv_cache_interface.py", "UniformTypeKVCacheSpecs.is_uniform_type"),
        Symbol("v1/kv_cache_interface.py", "UniformTypeKVCacheSpecs.__post_init__"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.get_kv_cache_spec"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.__init__"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "v1/kv_cache_interface.py: AttentionSpec has no dcp_sharded; draft layers are planned as sharded, and"
            " v1/worker/gpu/spec_decode/dflash/speculator.py writes them as if there were one rank",
            {"0.26.0": "fb723ecc5b0c4b27", "0.27.0": "4c329fc0499ad17a", "0.28.0": "5cc19f7de0d3a9ee"},
        ),
        Reading(
            Status.UNSUPPORTED,
            "v1/kv_cache_interface.py: AttentionSpec has no dcp_sharded; the draft cache is sharded like the"
            " target's, which flash_attn.py: _forward_with_dcp computes right only where all ranks of a group hold"
            " the same draft KV heads",
            {"0.29.0": "4ad6d3e7bce73bda", "0.30.0": "c877153cd7fcea45"},
        ),
        Reading(
            Status.NATIVE,
            "v1/worker/gpu/model_runner.py: GPUModelRunner.get_kv_cache_spec clears AttentionSpec.dcp_sharded of"
            " draft layers (DFlashSpeculator.__init__: a drafter without latent attention runs at one rank); merges"
            " keep it, groups never mix it",
            {"0.31.0": "77d84da1ae5fcb20", "0.32.0": "a10a75b432bec18b", "0.33.0": "900ba68bc302f7f8"},
        ),
    ),
    references=(
        "vllm-project/vllm#48392",
        "local-inference-lab/vllm#529",
        "local-inference-lab/vllm#513",
    ),
    warned_by="inspect-cache: dcp-draft-sharded",
)
