"""Rows that pad a draft batch to its CUDA graph must touch no request."""

from dspark_cli.patches.patch import Patch, Reading, Status, Symbol

PATCH = Patch(
    name="inert_padding",
    title="padded draft sampling rows belong to no request (-1) and padded queries write no KV",
    symbols=(
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "_prepare_dflash_inputs_kernel"),
        Symbol("v1/worker/gpu/spec_decode/dflash/speculator.py", "DFlashSpeculator.capture"),
        Symbol("v1/worker/gpu/sample/gumbel.py", "gumbel_block_argmax"),
    ),
    readings=(
        Reading(
            Status.NOT_NEEDED,
            (
                "v1/worker/gpu/spec_decode/dflash/speculator.py: _prepare_dflash_inputs_kernel gives padded sampling "
                "rows -1 and padded queries PAD_SLOT_ID in every step; DFlashSpeculator.capture alone points rows at "
                "slot 0, before any request lives, and padded inputs keep old tokens that no request reads"
            ),
            {
                "0.26.0": "c18d6dd6a948d905",
                "0.27.0": "6d2670e3d29cdddd",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/worker/gpu/spec_decode/dflash/speculator.py: DFlashSpeculator.capture starts from -1 too, as "
                "_prepare_dflash_inputs_kernel leaves padded rows in every step; padded inputs keep old tokens, in "
                "zero-length rows without a KV slot"
            ),
            {
                "0.28.0": "6b1194fcdbfb6fcb",
                "0.29.0": "9c89dbdf6a55e075",
                "0.31.0": "1af268436701710c",
                "0.32.0": "a66166ee3da81a74",
            },
        ),
        Reading(
            Status.NATIVE,
            (
                "v1/worker/gpu/spec_decode/dflash/speculator.py: _prepare_dflash_inputs_kernel gives padded sampling "
                "rows -1, and clears token, position and KV slot of padded queries"
            ),
            {"0.33.0": "3f5f1945b30d7b9d"},
        ),
    ),
    references=("local-inference-lab/vllm#105",),
)
