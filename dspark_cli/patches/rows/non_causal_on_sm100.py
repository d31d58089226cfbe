"""Non-causal drafts on SM100 must not land on FlashInfer by default."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="non_causal_on_sm100",
    title="non-causal drafts prefer FlashAttention to FlashInfer on SM100",
    symbols=(
        Symbol("platforms/cuda.py", "_get_backend_priorities"),
        Symbol("v1/worker/gpu/spec_decode/dflash/utils.py", "load_dflash_model"),
        Symbol("v1/worker/gpu/spec_decode/dspark/utils.py", "load_dspark_model"),
    ),
    readings=(
        Reading(
            Status.NATIVE,
            (
                "platforms/cuda.py: _get_backend_priorities puts FLASHINFER first on compute capability 10 only "
                "without use_non_causal, which load_dflash_model and load_dspark_model set from the drafter's layers"
            ),
            {
                "0.26.0": "8d52f98a68d428ed",
                "0.27.0": "4c76e2f4ed0b2b19",
                "0.28.0": "7d1e43587a2c1282",
                "0.29.0": "2b1eec9ba7ffa036",
                "0.30.0": "d05730ba3819b2c2",
                "0.31.0": "8d4880be9c2e0458",
                "0.32.0": "118160b04597c68f",
                "0.33.0": "9659717558b390d2",
            },
        ),
    ),
    references=("vllm-project/vllm#48167", "local-inference-lab/vllm#105"),
)
