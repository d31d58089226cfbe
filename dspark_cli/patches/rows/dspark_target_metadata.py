"""DeepSeek-V4's target metadata under DSpark: what counts as a decode."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="dspark_target_metadata",
    title="DeepSeek-V4 target metadata under DSpark calls a query a decode up to the width that verification has",
    symbols=(
        Symbol("v1/attention/backends/mla/sparse_swa.py", "DeepseekSparseSWAMetadataBuilder.__init__"),
        Symbol("v1/attention/backend.py", "AttentionMetadataBuilder._init_reorder_batch_threshold"),
        Symbol("v1/attention/backend.py", "max_decode_query_len"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            (
                "v1/attention/backends/mla/sparse_swa.py: DeepseekSparseSWAMetadataBuilder.__init__ has the threshold "
                "1 + 2 * depth for parallel drafters (DeepseekV4FlashMLAMetadataBuilder through "
                "v1/attention/backend.py: _init_reorder_batch_threshold the same): both builders split alike, so short "
                "prompt chunks take the decode path with the same causal window, on every rank"
            ),
            {
                "0.26.0": "6e36c4cac6f9d35e",
                "0.28.0": "9e53dd170006ca76",
                "0.29.0": "a030ba026ba0d77c",
                "0.30.0": "61beb165e93fc23d",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/attention/backend.py: max_decode_query_len is 1 + depth on model runner V2, and "
                "v1/attention/backends/mla/sparse_swa.py: DeepseekSparseSWAMetadataBuilder.__init__ uses it"
            ),
            {
                "0.31.0": "a383e5d9321859ff",
                "0.33.0": "f7a3ad6b6b0a8db7",
            },
        ),
    ),
    references=("local-inference-lab/vllm#105",),
)
