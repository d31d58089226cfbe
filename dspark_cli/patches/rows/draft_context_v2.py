"""The draft context on model runner V2: what hooks `draft_context/runner_v2.py` takes, and what it reads there."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

SPECULATOR = "v1/worker/gpu/spec_decode/dflash/speculator.py"
BASE = "v1/worker/gpu/spec_decode/speculator.py"

PATCH = Patch(
    name="draft_context_v2",
    title="restored tokens whose draft KV is stale are hidden from the drafter (model runner V2)",
    symbols=(
        # Where it acts.
        Symbol("v1/worker/worker_base.py", "WorkerBase.__init__"),
        Symbol("v1/worker/gpu/states.py", "RequestState.add_request"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.initialize_kv_cache"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner._dummy_run"),
        Symbol(SPECULATOR, "DFlashSpeculator.capture"),
        Symbol(SPECULATOR, "DFlashSpeculator._precompute_context_kv"),
        Symbol(SPECULATOR, "prepare_dflash_inputs"),
        # What it reads, and who else writes it.
        Symbol(SPECULATOR, "DFlashSpeculator.propose"),
        Symbol(SPECULATOR, "DFlashSpeculator.__init__"),
        Symbol(SPECULATOR, "DFlashSpeculator.set_attn"),
        Symbol(SPECULATOR, "DFlashSpeculator._prepare_graph_forward"),
        Symbol(SPECULATOR, "DFlashSpeculator._prepare_graph_replay"),
        Symbol(SPECULATOR, "_prepare_dflash_inputs_kernel"),
        Symbol(BASE, "DraftModelSpeculator.__init__"),
        Symbol(BASE, "DraftModelSpeculator.load_model"),
        Symbol(BASE, "DraftModelSpeculator.set_attn"),
        Symbol("v1/worker/gpu/model_runner.py", "GPUModelRunner.add_requests"),
        Symbol("v1/worker/gpu/states.py", "RequestState.__init__"),
        Symbol("v1/worker/gpu/block_table.py", "BlockTables"),
        Symbol("v1/worker/gpu/block_table.py", "_gather_block_tables_kernel"),
        Symbol("v1/worker/gpu/buffer_utils.py", "StagedWriteTensor"),
        Symbol("v1/worker/gpu/input_batch.py", "InputBatch"),
        Symbol("v1/worker/gpu/input_batch.py", "InputBuffers"),
        Symbol("model_executor/models/qwen3_dflash.py", "DFlashQwen3Model.precompute_and_store_context_kv"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            f"{SPECULATOR}: DFlashSpeculator has no _precompute_context_kv, through which context rows are stored in a"
            " step and in captured graphs alike: what is stored cannot be followed",
            {
                "0.26.0": "9b4b61cdb1ce1cc7",
                "0.27.0": "e35e5eba4a28f532",
                "0.28.0": "c524f09cbe059104",
                "0.29.0": "b4f1fda5ae8d406c",
                "0.30.0": "189c382136eca43c",
            },
        ),
        Reading(
            Status.UNSUPPORTED,
            "v1/worker/gpu/block_table.py: BlockTables splits blocks for the attention kernel (kernel_block_sizes),"
            " and lengths are hidden in whole blocks of the cache manager",
            {"0.31.0": "a6cf1b8a596dfc1c"},
        ),
        Reading(
            Status.APPLIES,
            f"{SPECULATOR}: DFlashSpeculator.propose prepares the inputs of all draft groups, then stores context rows"
            " by _precompute_context_kv, outside and inside captured graphs; nothing asks who wrote restored slots",
            {"0.32.0": "f0860c7e3dcf18a5", "0.33.0": "503ad4fc5e9fedb8"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    entry="dspark_cli.draft_context.plugin:keep_draft_context",
    warned_by="serve",
)
