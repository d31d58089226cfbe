"""Requests without a seed must draw the same one on every tensor-parallel rank."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="rank_equal_seeds",
    title="fallback sampling seeds are equal on all tensor-parallel ranks",
    symbols=(
        Symbol("v1/worker/gpu/sample/states.py", "SamplingStates.add_request"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.add_requests"),
        Symbol("v1/worker/gpu_worker.py", "Worker.compile_or_warm_up_model"),
        Symbol("utils/torch_utils.py", "set_random_seed"),
    ),
    readings=(
        Reading(
            Status.NATIVE,
            (
                "v1/worker/gpu/sample/states.py: SamplingStates.add_request draws from NumPy's global stream, its only "
                "user in a worker; v1/worker/gpu_worker.py: Worker.compile_or_warm_up_model sets that stream to the "
                "model's seed after warm-up on every rank, and requests are added in the scheduler's order"
            ),
            {
                "0.26.0": "73e6a5ca16bda865",
                "0.27.0": "c0a25362ca2d009d",
                "0.28.0": "c8262f3f44e25d03",
                "0.29.0": "b3d6e67c1d76d4f9",
                "0.30.0": "3f9002abc034861c",
                "0.31.0": "041f0d35757af2e9",
                "0.32.0": "98051d278c881fd5",
                "0.33.0": "1a208242537d40ef",
            },
        ),
    ),
    references=("local-inference-lab/vllm#105",),
)
