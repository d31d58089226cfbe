"""In-place left shift of block tables: hide the first blocks of a request by moving the rest of its row to the front.

Ordering. A program owns one row and walks it in ascending chunks of `chunk` entries. Chunk c loads [c*chunk + shift,
...) and stores [c*chunk, (c+1)*chunk). With shift > 0 there are three hazards, and one barrier a chunk settles them:

* *A store must not overtake a load of the same entry.* Entry p is stored in chunk p // chunk and loaded, as the
  source of entry p - shift, in chunk (p - shift) // chunk, which is the same chunk or an earlier one. A warp that
  stored early would destroy what another warp of the same chunk has still to load. The barrier **between the loads
  and the stores of a chunk** forbids it: past that barrier every warp has performed its loads of this chunk and of
  all earlier ones.
* *A load must not see a store of an earlier chunk.* It never can: loads of chunk c + 1 start at (c+1)*chunk + shift,
  stores up to chunk c end before (c+1)*chunk. So **no barrier is needed between the stores of a chunk and the loads
  of the next**, and the loads of the next chunk may be issued before the stores of this one (`prefetch`).
* *Two stores never meet*: each entry is stored once.

Software pipelining is switched off (num_stages=1), so that no compiler pass reorders what this argument is about.

Coalescing. The row's start is usually 16-byte aligned and row + shift is not. Were the alignment known, Triton would
give load and store one layout of four entries a thread; the unaligned load then becomes four 4-byte loads 16 bytes
apart a lane, which is four times the L1 wavefronts. The kernels are therefore not specialized on alignment: one entry
a thread, both sides coalesced.
"""

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from dspark_kernels.launch_checks import INDEX_DTYPES, require_power_of_two, require_table, require_vector

MAX_CHUNK = 4096
SMALL_CHUNK = 1024
REGISTERS_A_MULTIPROCESSOR = 65_536


@dataclass(frozen=True)
class ShiftShape:
    """How a row is walked.

    chunk: table entries a program loads before its barrier (power of two). num_warps: warps a program (power of two, at
    most 32). prefetch: load the next chunk before storing this one; keeps twice the bytes in flight for twice the
    registers. max_registers: registers a thread, None for the compiler's choice; a Hopper multiprocessor has 65,536.
    early: for rows of one chunk, touch the row before it is known how far it moves, so that its real load finds it in
    L1: a small table is bound by the latencies of loads that wait for one another, not by bytes.
    """

    chunk: int
    num_warps: int
    prefetch: bool = False
    max_registers: int | None = None
    early: bool = False

    def __post_init__(self) -> None:
        require_power_of_two("chunk", self.chunk)
        require_power_of_two("num_warps", self.num_warps)


def default_shift_shape(max_blocks: int) -> ShiftShape:
    """The shape for rows of `max_blocks` entries, the fastest of those timed on an H200 (`benchmarks/results`).

    Up to 4,096 entries: one chunk, touched early. Longer rows: chunks of 4,096, each loaded while the one before it
    waits and is stored. A thread has eight entries, in small chunks four: there latency counts, and a warp issues its
    loads one by one. Registers are held to what lets two programs share a multiprocessor.
    """
    chunk = min(max(triton.next_power_of_2(max_blocks), 128), MAX_CHUNK)
    num_warps = max(chunk // (32 * (4 if chunk <= SMALL_CHUNK else 8)), 1)
    one_chunk = max_blocks <= chunk
    return replace(_two_a_multiprocessor(chunk, num_warps, prefetch=not one_chunk), early=one_chunk)


def _two_a_multiprocessor(chunk: int, num_warps: int, prefetch: bool = False) -> ShiftShape:
    registers = REGISTERS_A_MULTIPROCESSOR // (2 * 32 * num_warps) if num_warps >= 16 else None
    return ShiftShape(chunk, num_warps, prefetch, registers)


def candidate_shift_shapes(max_blocks: int) -> list[ShiftShape]:
    """Shapes worth timing for rows of `max_blocks` entries, the default first."""
    default = default_shift_shape(max_blocks)
    shapes = [default]
    for chunk in (1024, 2048, 4096, 8192):
        for num_warps in (4, 8, 16, 32):
            entries_a_thread = chunk // (32 * num_warps)
            if chunk > max(2 * default.chunk, 1024) or not 2 <= entries_a_thread <= 16:
                continue  # more than 16 entries a thread spill
            shapes.append(_two_a_multiprocessor(chunk, num_warps))
            if chunk < max_blocks and entries_a_thread <= 8:
                shapes.append(_two_a_multiprocessor(chunk, num_warps, prefetch=True))
    shapes += [replace(shape, early=True) for shape in shapes if max_blocks <= shape.chunk <= MAX_CHUNK]
    return list(dict.fromkeys(shapes))


@triton.jit  # type: ignore[untyped-decorator]
def move_row_left(
    row: tl.tensor,
    shift: tl.tensor,
    needed: tl.tensor,
    early_row: tl.tensor,
    chunk: tl.constexpr,
    prefetch: tl.constexpr,
    early: tl.constexpr,
    ordered: tl.constexpr,
) -> None:
    """row[j] = row[j + shift] for 0 <= j < needed, in place, by one program; shift > 0 or needed <= 0.

    `early_row` is what an early touch of the row loaded. It is never stored, for needed is 0 wherever shift is not
    above 0; but the compiler cannot know that, and so keeps the touch. With `early` the row is one chunk.
    `ordered` is False in the control only (see `unguarded_shift`).
    """
    lane = tl.arange(0, chunk)
    target = row + lane
    source = target + shift
    if early:
        blocks = tl.load(source, mask=lane < needed)
        if ordered:
            tl.debug_barrier()
        tl.store(target, tl.where(shift > 0, blocks, early_row), mask=lane < needed)
    elif prefetch:
        ahead = tl.load(source, mask=lane < needed)
        for start in tl.range(0, needed, chunk, num_stages=1):
            blocks = ahead
            ahead = tl.load(source + (start + chunk), mask=lane < needed - start - chunk)
            if ordered:
                tl.debug_barrier()
            tl.store(target + start, blocks, mask=lane < needed - start)
    else:
        for start in tl.range(0, needed, chunk, num_stages=1):
            live = start + lane < needed
            blocks = tl.load(source + start, mask=live)
            if ordered:
                tl.debug_barrier()
            tl.store(target + start, blocks, mask=live)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["row_stride", "max_blocks"],
    do_not_specialize_on_alignment=["table"],
)
def shift_kernel(
    table: tl.tensor,
    row_stride: tl.tensor,
    max_blocks: tl.tensor,
    shift_blocks: tl.tensor,
    needed_blocks: tl.tensor,
    request_slots: tl.tensor,
    chunk: tl.constexpr,
    prefetch: tl.constexpr,
    early: tl.constexpr,
    ordered: tl.constexpr,
) -> None:
    """table[r, j] = table[r, j + s] for 0 <= j < n.

    s = shift_blocks[slot of r], n = min(needed_blocks[r], max_blocks - s). Untouched where the slot is -1 or s <= 0.
    Grid: (rows,).
    """
    row = tl.program_id(0).to(tl.int64)
    # Both scalars are asked for before either is looked at; a branch on the first would add a memory latency.
    needed = tl.load(needed_blocks + row)
    blocks = table + row * row_stride
    early_row = needed
    if early:
        lane = tl.arange(0, chunk)
        early_row = tl.load(blocks + lane, mask=lane < max_blocks)
        tl.debug_barrier()  # keeps the compiler from putting a load that waits for another in front of these
    slot = row
    if request_slots is not None:
        slot = tl.load(request_slots + row).to(tl.int64)
    shift = tl.load(shift_blocks + tl.maximum(slot, 0), mask=slot >= 0, other=0)
    needed = tl.where(shift > 0, tl.minimum(needed, max_blocks - shift), 0)
    move_row_left(blocks, shift, needed, early_row, chunk, prefetch, early, ordered)


def launch_shift(
    table: torch.Tensor,
    shift_blocks: torch.Tensor,
    needed_blocks: torch.Tensor,
    request_slots: torch.Tensor | None,
    shape: ShiftShape | None,
    *,
    ordered: bool,
) -> None:
    """Check the arguments of `shift_block_tables` and launch its kernel; without the barrier only for the control."""
    rows = needed_blocks.shape[0]
    require_table("table", table)
    require_vector("needed_blocks", needed_blocks, like=table)
    if rows > table.shape[0]:
        raise ValueError(f"needed_blocks has {rows} rows, but the table has {table.shape[0]}")
    if request_slots is None:
        require_vector("shift_blocks", shift_blocks, like=table, at_least=rows)
    else:
        require_vector("shift_blocks", shift_blocks, like=table, at_least=min(rows, 1))
        require_vector("request_slots", request_slots, like=table, at_least=rows, dtypes=INDEX_DTYPES)
    if rows == 0 or table.shape[1] == 0:
        return
    shape = shape or default_shift_shape(table.shape[1])
    shift_kernel[(rows,)](
        table,
        table.stride(0),
        table.shape[1],
        shift_blocks,
        needed_blocks,
        request_slots,
        chunk=shape.chunk,
        prefetch=shape.prefetch,
        early=shape.early and table.shape[1] <= shape.chunk,
        ordered=ordered,
        num_warps=shape.num_warps,
        maxnreg=shape.max_registers,
    )


def shift_block_tables(
    table: torch.Tensor,
    shift_blocks: torch.Tensor,
    needed_blocks: torch.Tensor,
    request_slots: torch.Tensor | None = None,
    *,
    shape: ShiftShape | None = None,
) -> None:
    """Move each row of a block table left, in place. Asynchronous, allocates nothing, usable under CUDA graph capture.

    table: int32 [requests, max_blocks], any row stride, contiguous rows.
    shift_blocks: int32 [rows], or [request slots] when `request_slots` is given; blocks. 0 and below leave the row
        untouched.
    needed_blocks: int32 [rows], rows <= requests; blocks that the row still needs after the shift. Only these are
        moved, and never from past the row's end; what lies behind them keeps its old value.
    request_slots: int32 or int64 [rows]; the request slot of each row, -1 for a padding row, which stays untouched.
        The mapping selects the shift, not the row: row r of `table` belongs to request slot request_slots[r].
    shape: how a row is walked; the default depends on max_blocks only.

    Raises ValueError on wrong dtypes, shapes, devices or strides. Launches nothing for zero rows.
    """
    launch_shift(table, shift_blocks, needed_blocks, request_slots, shape, ordered=True)
