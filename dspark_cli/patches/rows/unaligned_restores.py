"""Restored tokens that end within a block: their stale rows cannot be hidden, for the query lives in that block."""

from dspark_cli.patches.patch import Patch, Reading, Status
from dspark_cli.patches.rows import draft_context_v1, draft_context_v2

PATCH = Patch(
    name="unaligned_restores",
    title="stale draft KV in a last, partial restored block is zeroed once; no request stops drafting for it",
    symbols=tuple(dict.fromkeys([*draft_context_v2.PATCH.symbols, *draft_context_v1.PATCH.symbols])),
    readings=(
        Reading(
            Status.UNSUPPORTED,
            f"{draft_context_v2.SPECULATOR}: the draft context brings it, and does not fit model runner V2 here (see"
            " draft_context_v2)",
            {
                "0.26.0": "cfafcec3d372d43d",
                "0.27.0": "a6251eec0ea7ba97",
                "0.28.0": "a8edbe6111950a10",
                "0.29.0": "886b35f50938d9ab",
                "0.30.0": "e2a93cdbd911546e",
                "0.31.0": "10a26c142a18d45d",
            },
        ),
        Reading(
            Status.APPLIES,
            f"{draft_context_v2.SPECULATOR}: nothing asks whether restored tokens end at a block's end; the draft"
            " context, on either runner, zeroes the rows of the last block that the drafter did not write",
            {"0.32.0": "db5b185b450ab12b", "0.33.0": "d5a69824a64e60a5"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    entry=draft_context_v2.PATCH.entry,
    warned_by="serve",
)
