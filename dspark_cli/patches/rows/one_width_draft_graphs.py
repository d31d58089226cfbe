"""The drafter's CUDA graphs have the one width that the drafter runs, whatever depths are scheduled."""

from dspark_cli.patches.patch import Patch, Place, Reading, Status, Symbol

PATCH = Patch(
    name="one_width_draft_graphs",
    title="under a schedule of depths, draft CUDA graphs are captured only for the width that the drafter runs",
    symbols=(
        Symbol("v1/worker/gpu/cudagraph_utils.py", "CudaGraphManager._init_candidates"),
        Symbol("v1/worker/gpu/spec_decode/dflash/cudagraph.py", "DFlashCudaGraphManager._init_candidates"),
        Symbol("config/speculative.py", "SpeculativeConfig.uses_dynamic_speculative_decoding"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.init_cudagraph_manager"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.propose"),
    ),
    readings=(
        Reading(
            Status.APPLIES,
            (
                "v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates plans one width a scheduled depth "
                "for DFlash's manager too, while v1/worker/gpu/spec_decode/dflash/speculator.py: "
                "DFlashSpeculator.propose dispatches num_query_per_req only; a key holds the next larger graphs of "
                "whatever width, so those hide the ones that fit"
            ),
            {
                "0.26.0": "bbc1ebfbd60294a8",
                "0.27.0": "894794605a6294e5",
                "0.28.0": "0293aecdff2a1295",
                "0.29.0": "686118c65cb905d6",
                "0.30.0": "755dfb6bee800b72",
                "0.31.0": "68a59f124bcb89f3",
                "0.32.0": "de072817771eaf79",
                "0.33.0": "f7e46d652544d98d",
            },
        ),
    ),
    references=("vllm-project/vllm#48329",),
    entry="dspark_cli.patches.fixes.one_width_draft_graphs:apply",
    place=Place.RUNNER_V2,
)
