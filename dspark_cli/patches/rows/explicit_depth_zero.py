"""A depth that the scheduler chose stays what it is, 0 included."""

from dspark_cli.patches.patch import Patch, Place, Reading, Status, Symbol

PATCH = Patch(
    name="explicit_depth_zero",
    title="a scheduled depth of 0 stays 0 and is not replaced by the full depth",
    symbols=(
        Symbol("v1/core/sched/scheduler.py", "Scheduler.schedule"),
        Symbol("v1/core/sched/scheduler.py", "Scheduler._update_after_schedule"),
        Symbol("v1/core/sched/scheduler.py", "Scheduler.update_draft_token_ids"),
        Symbol("v1/core/sched/async_scheduler.py", "AsyncScheduler._update_after_schedule"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.sample_tokens"),
        Symbol("v1/worker/gpu_model_runner.py", "GPUModelRunner.propose_draft_token_ids"),
        Symbol("v1/spec_decode/llm_base_proposer.py", "SpecDecodeBaseProposer.propose"),
    ),
    readings=(
        Reading(
            Status.APPLIES,
            (
                "v1/worker/gpu/model_runner.py: GPUModelRunner.sample_tokens hands back drafts of the full depth, and "
                "without asynchronous scheduling v1/core/sched/scheduler.py: Scheduler.update_draft_token_ids takes "
                "them all; with it, AsyncScheduler._update_after_schedule keeps the depth"
            ),
            {
                "0.26.0": "766de58ee4540a97",
                "0.27.0": "f0c89b16060e1bd2",
                "0.28.0": "78475f874a92345c",
                "0.29.0": "09612f57743b30f7",
                "0.30.0": "1a84ef61856c208e",
                "0.31.0": "6b6a3c223c98f446",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/worker/gpu/model_runner.py: GPUModelRunner.sample_tokens cuts drafts to "
                "num_spec_tokens_to_schedule, v1/core/sched/scheduler.py: Scheduler.schedule takes that from the "
                "schedule as it is, and v1/worker/gpu_model_runner.py: GPUModelRunner.propose_draft_token_ids passes "
                "it on"
            ),
            {
                "0.32.0": "5a179935b33eba25",
                "0.33.0": "f7900c988c62708a",
            },
        ),
    ),
    references=("local-inference-lab/vllm#105",),
    entry="dspark_cli.patches.fixes.explicit_depth:apply",
    place=Place.ENGINE_CORE,
)
