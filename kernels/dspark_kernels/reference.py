"""Plain PyTorch references of every kernel: loops over requests, values on the host, no cleverness to be wrong in."""

from collections.abc import Sequence

import torch

from dspark_kernels.draft_groups import DraftGroup, hidden_alignment


def shift_block_tables_reference(
    table: torch.Tensor,
    shift_blocks: torch.Tensor,
    needed_blocks: torch.Tensor,
    request_slots: torch.Tensor | None = None,
) -> torch.Tensor:
    """What `shift_block_tables` leaves in `table`, as a new contiguous tensor; the arguments stay untouched."""
    shifted = table.clone(memory_format=torch.contiguous_format)
    slots = range(len(needed_blocks)) if request_slots is None else request_slots.tolist()
    for row, (slot, needed) in enumerate(zip(slots, needed_blocks.tolist(), strict=False)):
        shift = int(shift_blocks[slot]) if slot >= 0 else 0
        count = min(needed, table.shape[1] - shift)
        if shift > 0 and count > 0:
            shifted[row, :count] = table[row, shift : shift + count]
    return shifted


def gather_block_tables_reference(
    table: torch.Tensor,
    output: torch.Tensor,
    request_slots: torch.Tensor,
    hidden_blocks: torch.Tensor,
    needed_blocks: torch.Tensor,
) -> torch.Tensor:
    """What `gather_block_tables` leaves in `output`, as a new contiguous tensor; the arguments stay untouched."""
    gathered = output.clone(memory_format=torch.contiguous_format)
    for row, slot in enumerate(request_slots.tolist()):
        if slot < 0:
            gathered[row] = 0
            continue
        hidden = max(int(hidden_blocks[slot]), 0)
        count = min(int(needed_blocks[row]), table.shape[1] - hidden, output.shape[1])
        if count > 0:
            gathered[row, :count] = table[slot, hidden : hidden + count]
    return gathered


def mask_draft_context_reference(
    groups: Sequence[DraftGroup],
    tables: Sequence[torch.Tensor],
    seq_lens: torch.Tensor,
    request_slots: torch.Tensor,
    hidden_tokens: torch.Tensor,
    query_lens: int | torch.Tensor,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The tables and sequence lengths that `mask_draft_context` leaves, as new tensors; the arguments stay untouched."""
    masked_tables = [table.clone(memory_format=torch.contiguous_format) for table in tables]
    masked_seq_lens = seq_lens.clone()
    alignment = hidden_alignment(groups)
    for row, slot in enumerate(request_slots.tolist()):
        seq_len = int(seq_lens[row])
        query_len = int(query_lens[row]) if isinstance(query_lens, torch.Tensor) else query_lens
        hidden = max(min(int(hidden_tokens[slot]), seq_len - query_len), 0) if slot >= 0 else 0
        hidden = hidden // alignment * alignment
        masked_seq_lens[row] = seq_len - hidden
        for group, table, masked in zip(groups, tables, masked_tables, strict=True):
            shift = hidden // group.virtual_block_size
            count = min(-(-(seq_len - hidden) // group.virtual_block_size), table.shape[1] - shift)
            if shift > 0 and count > 0:
                masked[row, :count] = table[row, shift : shift + count]
    return masked_tables, masked_seq_lens
