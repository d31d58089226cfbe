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
    """The tables and sequence lengths that `mask_draft_context` leaves, as new tensors; the arguments stay as is."""
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


def slot_tag_reference(token: int, position: int) -> int:
    """The int32 tag of a token at a position, never 0; see `slot_tags.slot_tag`."""
    tag = mix32_reference((token & 0xFFFFFFFF) ^ mix32_reference((position + 0x9E3779B9) & 0xFFFFFFFF)) or 1
    return tag - (1 << 32) if tag >= 1 << 31 else tag


def mix32_reference(word: int) -> int:
    """MurmurHash3's finalizer on a 32-bit word."""
    word = (word ^ (word >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    word = (word ^ (word >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return word ^ (word >> 16)


def store_context_tags_reference(
    tags: torch.Tensor, slot_mapping: torch.Tensor, token_ids: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """What `store_context_tags` leaves in `tags`, as a new tensor; the arguments stay untouched."""
    tagged = tags.clone()
    for index, slot in enumerate(slot_mapping.tolist()):
        if 0 <= slot < len(tags):
            tagged[slot] = slot_tag_reference(int(token_ids[index]), int(positions[index]))
    return tagged


def check_admission_reference(
    groups: Sequence[DraftGroup],
    tags: Sequence[torch.Tensor],
    tables: Sequence[torch.Tensor],
    request_slots: torch.Tensor,
    restored_tokens: torch.Tensor,
    token_ids: torch.Tensor,
    hidden_tokens: torch.Tensor,
) -> torch.Tensor:
    """What `check_admission` leaves in `hidden_tokens`, as a new tensor; the arguments stay untouched."""
    hidden = hidden_tokens.clone()
    alignment = hidden_alignment(groups)
    for slot, wanted in zip(request_slots.tolist(), restored_tokens.tolist(), strict=False):
        if slot < 0:
            continue
        restored = min(wanted, token_ids.shape[1])
        last_invalid = -1
        for group, group_tags, table in zip(groups, tags, tables, strict=True):
            first = max(restored - group.sliding_window, 0) if group.sliding_window else 0
            for position in range(first, restored):
                tag = _tag_at(group_tags, table[slot], position, group.virtual_block_size)
                if tag != slot_tag_reference(int(token_ids[slot, position]), position):
                    last_invalid = max(last_invalid, position)
        hidden[slot] = -(-(last_invalid + 1) // alignment) * alignment
    return hidden


def _tag_at(tags: torch.Tensor, row: torch.Tensor, position: int, block_size: int) -> int:
    entry = position // block_size
    if entry >= len(row):
        return 0
    slot = int(row[entry]) * block_size + position % block_size
    return int(tags[slot]) if 0 <= slot < len(tags) else 0
