"""Runner V1 skips the drafter for a whole batch where one request is too long for it: stale context for the others."""

from dspark_cli.patches.patch import Patch, Place, Reading, Status, Symbol

RUNNER = "v1/worker/gpu_model_runner.py"

PATCH = Patch(
    name="skipped_drafter",
    title="a request too long for the drafter does not keep it from storing the others' context (model runner V1)",
    symbols=(
        Symbol(RUNNER, "GPUModelRunner.sample_tokens"),
        Symbol(RUNNER, "GPUModelRunner._input_fits_in_drafter"),
        Symbol(RUNNER, "GPUModelRunner.propose_draft_token_ids"),
        Symbol("v1/spec_decode/llm_base_proposer.py", "SpecDecodeBaseProposer.propose"),
        Symbol("v1/spec_decode/dflash.py", "DFlashProposer"),
        Symbol(RUNNER, "ExecuteModelState"),
        Symbol(RUNNER, "GPUModelRunner._get_positions"),
        Symbol("model_executor/models/qwen3_dflash.py", "DFlashQwen3Model.precompute_and_store_context_kv"),
        Symbol("model_executor/models/qwen3_dflash.py", "DFlashQwen3ForCausalLM.combine_hidden_states"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            f"{RUNNER}: GPUModelRunner._input_fits_in_drafter asks the batch's longest request, and sample_tokens skips"
            " the drafter for all of them; nobody has read the fix against the runner and the proposer up to 0.29",
            {
                "0.26.0": "5158269c1305b05d",
                "0.27.0": "f13c4eb96e72c25c",
                "0.28.0": "cc9b4781c80b8bda",
                "0.29.0": "e7fb017539bc5525",
            },
        ),
        Reading(
            Status.APPLIES,
            f"{RUNNER}: GPUModelRunner._input_fits_in_drafter asks the batch's longest request, and sample_tokens skips"
            " the drafter for all of them, context rows included, whose blocks are hashed all the same",
            {"0.30.0": "cd158511d1b93f1b", "0.31.0": "1c5bbadadd5236fd", "0.33.0": "b7157fe9e9adf619"},
        ),
    ),
    entry="dspark_cli.patches.fixes.skipped_drafter:apply",
    place=Place.RUNNER_V1,
)
