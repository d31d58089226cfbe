"""The control: the block-table shift without its barrier. DELIBERATELY WRONG, never to be used for anything but a
stress test.

A stress test that finds no error in the guarded shift proves something only if it would have found one. This runs the
very same kernel on the same shapes with the barrier left out: where it comes out right, the sweep could not have seen
a race on that GPU.
"""

import torch

from dspark_kernels.block_table_shift import ShiftShape, launch_shift


def shift_block_tables_unguarded(
    table: torch.Tensor,
    shift_blocks: torch.Tensor,
    needed_blocks: torch.Tensor,
    request_slots: torch.Tensor | None = None,
    *,
    shape: ShiftShape | None = None,
) -> None:
    """Like `shift_block_tables`, but racy by intention: warps store entries that other warps have still to load."""
    launch_shift(table, shift_blocks, needed_blocks, request_slots, shape, ordered=False)
