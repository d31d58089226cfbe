"""Draft masking: hide a request's first tokens from the drafter, in all its KV cache groups, with one launch.

The sequence length is shortened by the hidden tokens and every group's block-table row moves left by the hidden blocks.
Positions stay what they were: keys are stored after RoPE at absolute positions.

The shared sequence length. All groups of a row need the original length, and the same launch overwrites it. Two rules
keep every reader ahead of the writer:

* Written in place, a row has **one program, which does all its groups in turn**. Programs of one launch are not
  ordered, so a second program could read the shortened length and hide the tokens twice.
* Within that program every warp loads the length for itself, while one thread stores the new one. **A barrier stands
  between** them; without it a late warp would move its part of the row by the wrong amount.

Written to a second buffer (`masked_seq_lens`), the original is never overwritten and each group gets a program of its
own: better for few rows with several groups.
"""

import torch
import triton
import triton.language as tl

from dspark_kernels.block_table_shift import ShiftShape, default_shift_shape, move_row_left
from dspark_kernels.draft_groups import DraftBlockTables
from dspark_kernels.launch_checks import INDEX_DTYPES, require_vector


@triton.jit  # type: ignore[untyped-decorator]
def hide_in_group(
    row: tl.tensor,
    width: tl.tensor,
    block_size: tl.tensor,
    hidden: tl.tensor,
    kept: tl.tensor,
    early_row: tl.tensor,
    chunk: tl.constexpr,
    prefetch: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """Move the row left by hidden / block_size entries, as many as `kept` tokens need and the row has."""
    shift = hidden // block_size
    needed = tl.minimum((kept + block_size - 1) // block_size, width - shift)
    move_row_left(row, shift, tl.where(shift > 0, needed, 0), early_row, chunk, prefetch, early, True)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["table_stride", "table_width", "max_requests", "query_len"],
    do_not_specialize_on_alignment=["table", "hidden_tokens"],
)
def mask_kernel(
    table: tl.tensor,
    table_stride: tl.tensor,
    table_width: tl.tensor,
    addresses: tl.tensor,
    row_strides: tl.tensor,
    widths: tl.tensor,
    virtual_block_sizes: tl.tensor,
    seq_lens: tl.tensor,
    masked_seq_lens: tl.tensor,
    request_slots: tl.tensor,
    hidden_tokens: tl.tensor,
    max_requests: tl.tensor,
    query_len: tl.tensor,
    query_lens: tl.tensor,
    alignment: tl.constexpr,
    groups: tl.constexpr,
    groups_a_program: tl.constexpr,
    chunk: tl.constexpr,
    prefetch: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """With H = min(hidden_tokens[slot of r], seq_lens[r] - query length) rounded down to `alignment`, and at least 0:

    masked_seq_lens[r] = seq_lens[r] - H, and for every group of virtual block size B and row width W
    table[r, j] = table[r, j + H/B] for 0 <= j < min(ceil((seq_lens[r] - H) / B), W - H/B).

    H = 0 where the slot is -1. `table` and its stride and width are the only group's; several groups go by `addresses`.
    Grid: (rows, groups / groups_a_program); in place that is (rows, 1).
    """
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    # Everything that depends on nothing is asked for first, so that the memory latencies overlap.
    slot = tl.load(request_slots + row).to(tl.int64)
    seq_len = tl.load(seq_lens + row)
    if groups > 1:
        table = tl.load(addresses + group).to(tl.pointer_type(tl.int32))
        table_stride = tl.load(row_strides + group)
        table_width = tl.load(widths + group)
        block_size = tl.load(virtual_block_sizes + group)
    else:  # known without a load, and the block size without an integer division
        block_size = alignment
    if query_lens is not None:
        query_len = tl.load(query_lens + row)
    early_row = seq_len
    if early:  # hidden lengths of all requests, and the row: whichever slot and shift it will be, they are in L1
        lane = tl.arange(0, chunk)
        early_row = tl.load(table + row * table_stride + lane, mask=lane < table_width, other=0)
        early_row += tl.load(hidden_tokens + lane, mask=lane < max_requests, other=0)
        tl.debug_barrier()  # keeps the compiler from putting a load that waits for the slot in front of these
    hidden = tl.load(hidden_tokens + tl.maximum(slot, 0), mask=slot >= 0, other=0)
    hidden = tl.maximum(tl.minimum(hidden, seq_len - query_len), 0)
    hidden -= hidden % alignment
    kept = seq_len - hidden
    blocks = table + row * table_stride
    hide_in_group(blocks, table_width, block_size, hidden, kept, early_row, chunk, prefetch, early)
    if groups_a_program > 1:
        for other in tl.range(1, groups_a_program, num_stages=1):
            other_table = tl.load(addresses + other).to(tl.pointer_type(tl.int32))
            hide_in_group(
                other_table + row * tl.load(row_strides + other),
                tl.load(widths + other),
                tl.load(virtual_block_sizes + other),
                hidden,
                kept,
                early_row,
                chunk,
                prefetch,
                False,
            )
    if not early:  # with it, the row's own barrier has been passed, whatever the row's length
        tl.debug_barrier()
    if group == 0:
        tl.store(masked_seq_lens + row, kept)


def mask_draft_context(
    tables: DraftBlockTables,
    seq_lens: torch.Tensor,
    request_slots: torch.Tensor,
    hidden_tokens: torch.Tensor,
    query_lens: int | torch.Tensor,
    *,
    masked_seq_lens: torch.Tensor | None = None,
    shape: ShiftShape | None = None,
) -> None:
    """Hide the first tokens of each row from the drafter. One launch for all groups, capturable, allocates nothing.

    tables: the step's input block tables, moved in place; each row must hold the unshifted blocks of its request.
    seq_lens: int32 [rows or more], tokens; global lengths under context parallelism. Shortened in place by default.
    request_slots: int32 or int64 [rows]; -1 is a padding row, whose blocks and length stay.
    hidden_tokens: int32 [max_requests], by request slot; tokens, a multiple of `tables.alignment` (else rounded down).
    query_lens: query tokens a row, one number or int32 [rows]; no row gets shorter than this. The hidden length is cut
        to whole aligned blocks before the query, so a block in which the query lives is never hidden.
    masked_seq_lens: int32 [rows or more]; where to write the shortened lengths instead, distinct from `seq_lens`.
    shape: how a row is walked; the default depends on the widest table.

    Raises ValueError on wrong dtypes, shapes or devices. Launches nothing for zero rows.
    """
    rows = request_slots.shape[0]
    like = tables.tensors[0]
    require_vector("request_slots", request_slots, like=like, dtypes=INDEX_DTYPES)
    require_vector("seq_lens", seq_lens, like=like, at_least=rows)
    require_vector("hidden_tokens", hidden_tokens, like=like, at_least=min(rows, 1))
    if isinstance(query_lens, torch.Tensor):
        require_vector("query_lens", query_lens, like=like, at_least=rows)
    if masked_seq_lens is not None:
        require_vector("masked_seq_lens", masked_seq_lens, like=like, at_least=rows)
    if rows > tables.rows:
        raise ValueError(f"request_slots has {rows} rows, but a block table has {tables.rows}")
    if rows == 0:
        return
    in_place = masked_seq_lens is None or masked_seq_lens.data_ptr() == seq_lens.data_ptr()
    num_groups = len(tables.groups)
    shape = shape or default_shift_shape(tables.max_blocks)
    groups_a_program = num_groups if in_place else 1
    mask_kernel[(rows, num_groups // groups_a_program)](
        like,
        like.stride(0),
        like.shape[1],
        tables.addresses,
        tables.row_strides,
        tables.lengths,
        tables.virtual_block_sizes,
        seq_lens,
        seq_lens if masked_seq_lens is None else masked_seq_lens,
        request_slots,
        hidden_tokens,
        hidden_tokens.shape[0],
        0 if isinstance(query_lens, torch.Tensor) else query_lens,
        query_lens if isinstance(query_lens, torch.Tensor) else None,
        alignment=tables.alignment,
        groups=num_groups,
        groups_a_program=groups_a_program,
        chunk=shape.chunk,
        prefetch=shape.prefetch,
        early=shape.early and num_groups == 1 and like.shape[1] <= shape.chunk,
        num_warps=shape.num_warps,
        maxnreg=shape.max_registers,
    )
