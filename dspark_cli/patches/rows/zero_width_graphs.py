"""A depth of 0 in the schedule must not become a draft CUDA graph of width 0."""

from dspark_cli.patches.patch import Patch, Place, Reading, Status, Symbol

PATCH = Patch(
    name="zero_width_graphs",
    title="a scheduled depth of 0 does not stop the start with a draft CUDA graph of width 0",
    symbols=(
        Symbol("v1/worker/gpu/cudagraph_utils.py", "CudaGraphManager._init_candidates"),
        Symbol("v1/worker/gpu/spec_decode/dflash/cudagraph.py", "DFlashCudaGraphManager._init_candidates"),
        Symbol("config/speculative.py", "SpeculativeConfig.uses_dynamic_speculative_decoding"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.init_cudagraph_manager"),
    ),
    readings=(
        Reading(
            Status.APPLIES,
            (
                "v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates adds decode_query_len - "
                "num_speculative_tokens to each scheduled depth; that is 0 for a DSpark drafter that samples from its "
                "anchor, so depth 0 is round_up(num_tokens, 0), a ZeroDivisionError"
            ),
            {
                "0.26.0": "3b0612f52213f6ab",
                "0.27.0": "cc116e9afff76792",
                "0.28.0": "53293c14e2996bc3",
                "0.29.0": "74473cad1cf2aa53",
                "0.30.0": "e70dd7cca83ea59b",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates follows the schedule only where "
                "decode_query_len > num_speculative_tokens"
            ),
            {"0.32.0": "f9a4994b51eccf5e"},
        ),
    ),
    references=("vllm-project/vllm#47737", "vllm-project/vllm#48329", "local-inference-lab/vllm#105"),
    entry="dspark_cli.patches.fixes.one_width_draft_graphs:apply",
    place=Place.RUNNER_V2,
)
