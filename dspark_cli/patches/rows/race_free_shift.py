"""A block table that is shifted where it stands must not be read and written at once."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="race_free_shift",
    title="no block table is shifted in place without a barrier between its loads and its stores",
    symbols=(
        Symbol("v1/worker/gpu/block_table.py", "BlockTables.gather_block_tables"),
        Symbol("v1/worker/gpu/block_table.py", "_gather_block_tables_kernel"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.propose"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "_prepare_dflash_inputs_kernel"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            "v1/worker/gpu/block_table.py: _gather_block_tables_kernel copies rows from the persistent table to the"
            " step's own, and v1/worker/gpu/spec_decode/dflash/speculator.py only reads that: vLLM shifts no table."
            " The draft context does, in dspark_kernels, with the barrier that `stress-shift` proves",
            {
                "0.26.0": "d928107a1f682a7a",
                "0.27.0": "da77f10fdd95572c",
                "0.28.0": "89514595870dfda4",
                "0.29.0": "15a3542317e32924",
                "0.30.0": "4e61f1f52a7e4b50",
                "0.31.0": "0558d62743c1e4c6",
                "0.32.0": "41dbd323164dcbea",
                "0.33.0": "6b80dabed8ddbe54",
            },
        ),
    ),
    references=("local-inference-lab/vllm#529",),
)
