"""Slots of each KV cache group by its own context parallel geometry."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="dcp_slot_mapping",
    title="slot mappings follow each group: sharded for the target, whole for a replicated draft",
    symbols=(
        Symbol("v1/worker/gpu/block_table.py", "BlockTables.__init__"),
        Symbol("v1/worker/gpu/block_table.py", "_compute_slot_mappings_kernel"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "_prepare_dflash_inputs_kernel"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.propose"),
    ),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            "v1/worker/gpu/spec_decode/dflash/speculator.py: _prepare_dflash_inputs_kernel divides positions by the"
            " block size alone, in a table whose blocks stand for block size times ranks: the drafter writes the"
            " wrong slots",
            {"0.26.0": "8dda83ba3ab0d34b", "0.27.0": "0f3a9e5658b574c9", "0.28.0": "8acb32279555e93a"},
        ),
        Reading(
            Status.NOT_NEEDED,
            "v1/worker/gpu/spec_decode/dflash/speculator.py: _prepare_dflash_inputs_kernel takes the ranks from the"
            " block tables (cp_local_slot); all groups are sharded alike, so one geometry is right for the slots"
            " (see dcp_specs)",
            {"0.29.0": "49197ad7c6a2e300", "0.30.0": "713db0d417a3191b"},
        ),
        Reading(
            Status.NATIVE,
            "v1/worker/gpu/block_table.py: _compute_slot_mappings_kernel loads dcp_sharded of the group;"
            " DFlashSpeculator.propose gives its own dcp_size",
            {"0.31.0": "d9510f5fc93c77ef", "0.32.0": "832790156d5e179c", "0.33.0": "dc90a2ace3c95e89"},
        ),
    ),
    references=(
        "vllm-project/vllm#52188",
        "vllm-project/vllm#48392",
        "local-inference-lab/vllm#529",
    ),
    warned_by="inspect-cache: dcp-draft-sharded",
)
