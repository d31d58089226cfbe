"""The draft context on model runner V1: what hooks `draft_context/runner_v1.py` takes, and what it reads there."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

RUNNER = "v1/worker/gpu_model_runner.py"
DFLASH = "v1/spec_decode/dflash.py"
BASE = "v1/spec_decode/llm_base_proposer.py"

PATCH = Patch(
    name="draft_context_v1",
    title="restored tokens whose draft KV is stale are hidden from the drafter (model runner V1)",
    symbols=(
        # Where it acts.
        Symbol("v1/worker/worker_base.py", "WorkerBase.__init__"),
        Symbol(RUNNER, "GPUModelRunner._update_states"),
        Symbol(DFLASH, "DFlashProposer.set_inputs_first_pass"),
        Symbol(DFLASH, "DFlashProposer.build_model_inputs_first_pass"),
        # What it reads, and who else writes it.
        Symbol(DFLASH, "DFlashProposer.__init__"),
        Symbol(BASE, "SpecDecodeBaseProposer.__init__"),
        Symbol(BASE, "SpecDecodeBaseProposer.load_model"),
        Symbol(BASE, "SpecDecodeBaseProposer.initialize_attn_backend"),
        Symbol(BASE, "SpecDecodeBaseProposer.propose"),
        Symbol("v1/spec_decode/utils.py", "copy_and_expand_dflash_inputs_kernel"),
        Symbol(RUNNER, "GPUModelRunner._build_attention_metadata"),
        Symbol(RUNNER, "GPUModelRunner.propose_draft_token_ids"),
        Symbol("v1/worker/gpu_input_batch.py", "InputBatch.__init__"),
        Symbol("v1/worker/gpu_input_batch.py", "InputBatch.req_ids"),
        Symbol("v1/worker/block_table.py", "BlockTable.__init__"),
        Symbol("v1/core/sched/output.py", "SchedulerOutput"),
        Symbol("v1/core/sched/output.py", "NewRequestData"),
        Symbol("v1/core/sched/output.py", "CachedRequestData"),
        Symbol("v1/attention/backend.py", "CommonAttentionMetadata"),
        Symbol("model_executor/models/qwen3_dflash.py", "DFlashQwen3Model.precompute_and_store_context_kv"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            f"{DFLASH}: DFlashProposer has the hooks, but its buffers, its kernel's launch and the metadata that it"
            " returns were others up to 0.29, and nobody has read draft_context/runner_v1.py against them",
            {
                "0.26.0": "01d046059ebfa532",
                "0.27.0": "ed70c5e8c4c837d5",
                "0.28.0": "1c667ef0e6886687",
                "0.29.0": "3c7d02706e5c1c18",
            },
        ),
        Reading(
            Status.APPLIES,
            f"{BASE}: SpecDecodeBaseProposer.propose calls DFlashProposer.set_inputs_first_pass, builds attention"
            " metadata from what it returns, and stores context rows in build_model_inputs_first_pass; nothing asks"
            " who wrote restored slots",
            {
                "0.30.0": "d03b0c1784d12a67",
                "0.31.0": "92ed676fe1d68c14",
                "0.32.0": "96e6a0ce7cdd559c",
                "0.33.0": "315a4feddbd72162",
            },
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    entry="dspark_cli.draft_context.plugin:keep_draft_context",
    warned_by="serve",
)
