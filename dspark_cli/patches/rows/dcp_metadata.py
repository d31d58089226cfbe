"""Sequence lengths in attention metadata by each group's own context parallel geometry."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="dcp_metadata",
    title="attention metadata of a replicated draft has whole sequence lengths, that of the target local ones",
    symbols=(
        Symbol("v1/worker/gpu/spec_decode/speculator.py", "DraftModelSpeculator._build_draft_attn_metadata"),
        Symbol("v1/worker/gpu/spec_decode/speculator.py", "DraftModelSpeculator._build_attn_metadata"),
        Symbol("v1/attention/backend.py", "AttentionImplBase.__new__"),
        Symbol("v1/attention/backends/flash_attn.py", "FlashAttentionMetadataBuilder.__init__"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "v1/worker/gpu/spec_decode/speculator.py: _build_draft_attn_metadata hands over no dcp_local_seq_lens,"
            " and v1/attention/backends/flash_attn.py reads the draft as sharded over the process-wide group, which"
            " its slots are not",
            {"0.26.0": "8d10a953bc1fe8a1", "0.27.0": "eb8f547395308b37", "0.28.0": "8ca6695b2f97cb81"},
        ),
        Reading(
            Status.NOT_NEEDED,
            "v1/worker/gpu/spec_decode/speculator.py: draft metadata has dcp_local_seq_lens of the block tables'"
            " geometry, which is that of every group there (see dcp_specs)",
            {"0.29.0": "c1ea6e45ed63d098", "0.30.0": "4e4911da9cd48de9"},
        ),
        Reading(
            Status.NATIVE,
            "v1/worker/gpu/spec_decode/speculator.py: _build_attn_metadata takes local lengths only where its own"
            " dcp_size > 1; flash_attn.py: FlashAttentionMetadataBuilder.__init__ asks kv_cache_spec.dcp_sharded."
            " Graph capture still has the target's local lengths, which FlashAttention and FlashInfer ignore for a"
            " replicated draft",
            {"0.31.0": "7088ae8208c63989", "0.32.0": "3eb3149dd1b66ec7", "0.33.0": "1192862f7fc42d51"},
        ),
    ),
    references=(
        "vllm-project/vllm#52188",
        "vllm-project/vllm#48392",
        "local-inference-lab/vllm#529",
    ),
    warned_by="inspect-cache: dcp-draft-sharded",
)
