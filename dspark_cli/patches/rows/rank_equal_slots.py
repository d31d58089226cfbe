"""Request slots must be recycled in the same order on every tensor-parallel rank."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="rank_equal_slots",
    title="request slots are recycled in the same order on all tensor-parallel ranks",
    symbols=(
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.finish_requests"),
        Symbol("v1/worker/gpu/states.py", "RequestState.remove_request"),
        Symbol("v1/worker/gpu/sample/batch_shard.py", "BatchSharder.shard_sampler_inputs"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            (
                "v1/worker/gpu/model_runner.py: GPUModelRunner.finish_requests frees slots in a set's order, which "
                "differs by process, but no rank uses another's slot numbers: v1/worker/gpu/sample/batch_shard.py does "
                "not exist, and random draws depend on seed and position"
            ),
            {
                "0.26.0": "3f64ec2b7f47e743",
                "0.27.0": "ad21f7c374359eba",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/worker/gpu/model_runner.py: GPUModelRunner.finish_requests frees slots in sorted order of request "
                "ids, since batch-sharded sampling derives a request's rank from its slot"
            ),
            {
                "0.29.0": "e38f54e04996d1c3",
                "0.31.0": "1418d852fea41da0",
                "0.32.0": "29f96a51a3588353",
                "0.33.0": "7a79e3700c825457",
            },
        ),
    ),
    references=("local-inference-lab/vllm#105",),
)
