"""A drafter whose attention backend would misread its cache under context parallelism."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="refuse_backend_without_dcp",
    title="an attention backend that cannot serve the draft under context parallelism is refused",
    symbols=(
        Symbol("v1/worker/cp_utils.py", "check_attention_cp_compatibility"),
        Symbol("v1/attention/backend.py", "AttentionImplBase.__new__"),
        Symbol("v1/attention/backends/flash_attn.py", "FlashAttentionMetadataBuilder.__init__"),
        Symbol("v1/attention/backends/flashinfer.py", "FlashInferMetadataBuilder.__init__"),
    ),
    readings=(
        Reading(
            Status.NATIVE,
            "v1/worker/cp_utils.py: check_attention_cp_compatibility asserts need_to_return_lse_for_decode of every"
            " layer, the drafter's too: its cache is sharded like the target's, and a backend without that is"
            " refused at start",
            {
                "0.26.0": "3fd8f7a882db9de5",
                "0.28.0": "4274a55610e6fffd",
                "0.29.0": "6b7573aa4089438e",
                "0.30.0": "8676463dbaa9c8ab",
            },
        ),
        Reading(
            Status.NOT_NEEDED,
            "v1/attention/backend.py: AttentionImplBase.__new__ takes one rank for a replicated draft; the builders"
            " that know context parallelism, flash_attn.py and flashinfer.py, ask kv_cache_spec.dcp_sharded, the"
            " others but MLA do not know it, and drafters with latent attention are not replicated",
            {"0.31.0": "1d53463b9f58df2b", "0.32.0": "c174b35499aa1bef", "0.33.0": "fed79e662225f48d"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    warned_by="inspect-cache: dcp-backend",
)
