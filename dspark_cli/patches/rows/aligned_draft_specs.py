"""Sliding-window draft layers whose blocks hold as many tokens as the target's."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="aligned_draft_specs",
    title="cache specs of sliding-window draft layers start from the target's aligned block",
    symbols=(
        Symbol("model_executor/layers/attention/attention.py", "Attention.get_kv_cache_spec"),
        Symbol("model_executor/layers/attention/attention.py", "_largest_kernel_block_within"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "model_executor/layers/attention/attention.py: _largest_kernel_block_within without a page budget is the"
            " backend's smallest block (16), and unify_kv_cache_spec_page_size scales it only where its page divides"
            " the largest one",
            {"0.26.0": "e81243343c71ec46", "0.27.0": "cc064a61fa71aea1", "0.28.0": "14a4b6c537a5f2a7"},
        ),
        Reading(
            Status.NATIVE,
            "model_executor/layers/attention/attention.py: Attention.get_kv_cache_spec takes cache_config.block_size"
            " as the page budget; a backend with fixed kernel blocks (FlashInfer) still starts from its largest one"
            " that fits",
            {"0.30.0": "0d5cd6e390cfff3d", "0.31.0": "10ce2995a623526d"},
        ),
    ),
    references=(
        "local-inference-lab/vllm#529",
        "local-inference-lab/vllm#533",
    ),
    warned_by="inspect-cache: draft-block-below-aligned",
)
