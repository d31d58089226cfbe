"""FlashInfer's non-causal prefill wrapper must not be replayed from a CUDA graph."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="eager_non_causal_flashinfer",
    title="non-causal FlashInfer draft attention runs outside FULL CUDA graphs",
    symbols=(
        Symbol("v1/attention/backends/flashinfer.py", "FlashInferMetadataBuilder.get_cudagraph_support"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.attn_vllm_config"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.init_cudagraph_manager"),
    ),
    readings=(
        Reading(
            Status.NATIVE,
            (
                "v1/attention/backends/flashinfer.py: FlashInferMetadataBuilder.get_cudagraph_support is "
                "UNIFORM_SINGLE_TOKEN_DECODE with use_non_causal, and v1/worker/gpu/spec_decode/dflash/speculator.py: "
                "DFlashSpeculator.init_cudagraph_manager then drafts eagerly"
            ),
            {
                "0.26.0": "3144a7833d71acc3",
                "0.27.0": "1504c392c078dc92",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/attention/backends/flashinfer.py: FlashInferMetadataBuilder.get_cudagraph_support allows FULL "
                "graphs with use_non_causal only where XQA kernels take the draft block (SM12x, from 0.30 SM90 too), "
                "not the prefill wrapper; v1/worker/gpu/spec_decode/dflash/speculator.py: "
                "DFlashSpeculator.init_cudagraph_manager drafts eagerly elsewhere"
            ),
            {
                "0.28.0": "80ab519533bd7ea1",
                "0.29.0": "bdae71e3081fecca",
                "0.30.0": "9c3b72668568e382",
                "0.32.0": "89d60932f5b9b66e",
                "0.33.0": "7e26263fc5dab559",
            },
        ),
    ),
    references=("vllm-project/vllm#48167", "local-inference-lab/vllm#105"),
)
