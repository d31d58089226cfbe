"""What a draft CUDA graph computes must not be read after its memory may have been reused."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="graph_outputs_alive",
    title="nothing outside a draft CUDA graph reads the backbone's output, whose memory the next graph may reuse",
    symbols=(
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator._generate_draft"),
        Symbol("v1/worker/gpu/spec_decode/dspark/speculator.py", "DSparkSpeculator._generate_draft"),
        Symbol("v1/worker/gpu/spec_decode/dspark/speculator.py", "DSparkSpeculator._sample_sequential"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.propose"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            (
                "v1/worker/gpu/spec_decode/dflash/speculator.py: DFlashSpeculator._generate_draft and "
                "v1/worker/gpu/spec_decode/dspark/speculator.py: DSparkSpeculator._sample_sequential consume the "
                "backbone's output inside the captured step and leave results in draft_tokens, draft_logits and "
                "confidences, which the speculator owns; DFlashSpeculator.propose returns draft_tokens; a graph's pool "
                "keeps its memory"
            ),
            {
                "0.26.0": "8463674e8bed6d93",
                "0.27.0": "103f264cced053d7",
                "0.28.0": "304ee26c10fe31d4",
                "0.29.0": "6b8b9ab904c4cae7",
                "0.30.0": "77a37d2a100a1cf5",
                "0.31.0": "0c17395d0b85b8fe",
                "0.32.0": "f918f371a83959d9",
                "0.33.0": "a7872f8467d5603e",
            },
        ),
    ),
    references=("local-inference-lab/vllm#105",),
)
