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
                "0.26.0": "d264f2353e4d7ff0",
                "0.27.0": "8834f2da323a3092",
                "0.28.0": "050d26540db74f66",
                "0.29.0": "1d829cd3f71e3028",
                "0.30.0": "6ba602c8a29d8620",
                "0.31.0": "9b9b2dbe368d6c06",
            },
        ),
        Reading(
            Status.APPLIES,
            f"{draft_context_v2.SPECULATOR}: nothing asks whether restored tokens end at a block's end; the draft"
            " context, on either runner, zeroes the rows of the last block that the drafter did not write",
            {"0.32.0": "50ab366930091191", "0.33.0": "4882a2ed959ec06b"},
        ),
    ),
    references=("local-inference-lab/vllm#529",),
    entry=draft_context_v2.PATCH.entry,
    warned_by="serve",
)
