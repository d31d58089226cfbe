"""Offset gather: the shifted row straight from the persistent block table into the step's input table.

Out of place, so there is nothing to order: no program reads what another writes, and any number of programs may share a
row. It costs the step nothing where the input table is gathered anyway.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from dspark_kernels.launch_checks import INDEX_DTYPES, require_power_of_two, require_table, require_vector

NULL_BLOCK = 0  # vLLM's block that no request owns


@dataclass(frozen=True)
class GatherShape:
    """chunk: table entries a program copies (power of two); num_warps: warps a program. A row has ceil(width/chunk)."""

    chunk: int
    num_warps: int

    def __post_init__(self) -> None:
        require_power_of_two("chunk", self.chunk)
        require_power_of_two("num_warps", self.num_warps)


def default_gather_shape(max_blocks: int) -> GatherShape:
    """Up to 1,024 entries a program, eight a thread: many loads in flight, and enough programs for a few long rows."""
    chunk = min(max(triton.next_power_of_2(max_blocks), 128), 1024)
    return GatherShape(chunk=chunk, num_warps=max(chunk // 256, 1))


def candidate_gather_shapes(max_blocks: int) -> list[GatherShape]:
    """Shapes worth timing for rows of `max_blocks` entries, the default first."""
    default = default_gather_shape(max_blocks)
    shapes = [
        GatherShape(chunk, num_warps)
        for chunk in (512, 1024, 2048, 4096, 8192)
        for num_warps in (2, 4, 8, 16)
        if chunk <= max(default.chunk, max_blocks) and 4 <= chunk // (32 * num_warps) <= 16
    ]
    return list(dict.fromkeys([default, *shapes]))


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["table_stride", "table_blocks", "output_stride", "output_blocks"],
    do_not_specialize_on_alignment=["table", "output"],
)
def gather_kernel(
    table: tl.tensor,
    table_stride: tl.tensor,
    table_blocks: tl.tensor,
    output: tl.tensor,
    output_stride: tl.tensor,
    output_blocks: tl.tensor,
    request_slots: tl.tensor,
    hidden_blocks: tl.tensor,
    needed_blocks: tl.tensor,
    null_block: tl.constexpr,
    chunk: tl.constexpr,
) -> None:
    """output[r, j] = table[q, h + j] for 0 <= j < n: q = request_slots[r], h = max(hidden_blocks[q], 0), n as needed.

    output[r, :] = null_block where q is -1. Grid: (rows, ceil(output_blocks / chunk)).
    """
    row = tl.program_id(0).to(tl.int64)
    needed = tl.load(needed_blocks + row)
    slot = tl.load(request_slots + row).to(tl.int64)
    padding = slot < 0
    hidden = tl.maximum(tl.load(hidden_blocks + tl.maximum(slot, 0), mask=slot >= 0, other=0), 0)
    readable = tl.where(padding, 0, tl.minimum(needed, table_blocks - hidden))
    written = tl.minimum(tl.where(padding, output_blocks, readable), output_blocks)
    start = tl.program_id(1) * chunk
    lane = tl.arange(0, chunk)
    source = table + tl.maximum(slot, 0) * table_stride + (start + hidden)
    blocks = tl.load(source + lane, mask=lane < readable - start, other=null_block)
    tl.store(output + row * output_stride + start + lane, blocks, mask=lane < written - start)


def gather_block_tables(
    table: torch.Tensor,
    output: torch.Tensor,
    request_slots: torch.Tensor,
    hidden_blocks: torch.Tensor,
    needed_blocks: torch.Tensor,
    *,
    shape: GatherShape | None = None,
) -> None:
    """Copy each request's row, without its hidden blocks, into the step's input table. Capturable, allocates nothing.

    table: int32 [max_requests, max_blocks], the persistent table, one row a request slot.
    output: int32 [rows or more, max_blocks], the step's input table; must not share memory with `table`.
    request_slots: int32 or int64 [rows]; the slot of each row. -1 is a padding row, filled with the null block.
    hidden_blocks: int32 [max_requests], by request slot; blocks to leave out at the row's front, negative counts as 0.
    needed_blocks: int32 [rows]; blocks to copy, cut to what the source row has behind its hidden blocks and to what
        fits. Entries of a request's output row behind them keep their old value.

    Raises ValueError on wrong dtypes, shapes, devices, strides or on the same storage. Launches nothing for zero rows.
    """
    require_table("table", table)
    require_table("output", output)
    require_vector("request_slots", request_slots, like=table, dtypes=INDEX_DTYPES)
    rows = request_slots.shape[0]
    require_vector("hidden_blocks", hidden_blocks, like=table, at_least=table.shape[0])
    require_vector("needed_blocks", needed_blocks, like=table, at_least=rows)
    if output.device != table.device:
        raise ValueError(f"output is on {output.device}, but {table.device} is needed")
    if rows > output.shape[0]:
        raise ValueError(f"request_slots has {rows} rows, but output has {output.shape[0]}")
    if rows == 0 or output.shape[1] == 0:
        return
    if output.data_ptr() == table.data_ptr():
        raise ValueError("output and table are the same memory; use shift_block_tables in place")
    shape = shape or default_gather_shape(output.shape[1])
    gather_kernel[(rows, triton.cdiv(output.shape[1], shape.chunk))](
        table,
        table.stride(0),
        table.shape[1],
        output,
        output.stride(0),
        output.shape[1],
        request_slots,
        hidden_blocks,
        needed_blocks,
        null_block=NULL_BLOCK,
        chunk=shape.chunk,
        num_warps=shape.num_warps,
    )
