"""`written_rows` in plain PyTorch: what its kernels are compared with, and what runs where Triton has no device.

It reads and writes the same filter, so the two may even take turns.
"""

from collections.abc import Sequence

import torch

from dspark_kernels.written_rows import SAMPLES, Admission, GroupRows, RowCells, WrittenRows

WORD = 0xFFFFFFFF


def fingerprint_reference(
    rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two words of 32 bits a row, as int64 [rows].

    With c the sampled cells of the row, i their number over all layers, and all arithmetic modulo 2^32:
    m_i = mix(c_i ^ (i * 0x9E3779B1 + 0x7F4A7C15)), what = mix(token ^ mix(position + 0x9E3779B9)),
    first = mix(sum m_i ^ what), second = mix(sum mix(m_i ^ 0x27D4EB2F) ^ mix(what + 0x165667B1)).
    """
    cells = [layer.elements[layer.at(slots, rows.samples[at])] for at, layer in enumerate(rows.layers)]
    stored = torch.cat(cells, dim=1).long() & ((1 << 8 * rows.element_bytes) - 1)
    number = torch.arange(len(rows.layers) * SAMPLES, device=stored.device)
    mixed = _mix(stored ^ ((number * 0x9E3779B1 + 0x7F4A7C15) & WORD))
    what = _mix(tokens.long() & WORD ^ _mix(positions.long() + 0x9E3779B9))
    first = _mix((mixed.sum(1) & WORD) ^ what)
    return first, _mix((_mix(mixed ^ 0x27D4EB2F).sum(1) & WORD) ^ _mix(what + 0x165667B1))


def record_written_rows_reference(
    filter_: WrittenRows, rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> None:
    """See `record_written_rows`."""
    live = ((slots >= 0) & (slots < rows.num_slots)).nonzero().squeeze(1)
    if live.shape[0] == 0:
        return
    first, second = fingerprint_reference(rows, slots[live], tokens[live], positions[live])
    _put(filter_, first & (filter_.words.shape[1] - 1), _bits(second))


def find_unwritten_rows_reference(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, past_unwritten: torch.Tensor
) -> None:
    """See `find_unwritten_rows`."""
    for group, table in zip(groups, admission.tables, strict=True):
        for at, (request, restored) in enumerate(_requests(admission)):
            first_seen = max(restored - group.group.sliding_window, 0) if group.group.sliding_window else 0
            unwritten = _unwritten(filter_, group, table, admission, request, range(first_seen, restored))
            if unwritten.shape[0]:
                past_unwritten[at] = torch.maximum(past_unwritten[at], unwritten.max().to(torch.int32) + 1)


def zero_unwritten_rows_reference(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, alignment: int
) -> None:
    """See `zero_unwritten_rows`."""
    for group, table in zip(groups, admission.tables, strict=True):
        for request, restored in _requests(admission):
            residual = range(restored - restored % alignment, restored)
            if group.group.sliding_window:
                residual = range(max(residual.start, restored - group.group.sliding_window), restored)
            unwritten = _unwritten(filter_, group, table, admission, request, residual)
            slots, _ = _slots(group, table[request], unwritten)
            for at, layer in enumerate(group.rows.layers):
                layer.elements[layer.at(slots, group.rows.cells[at])] = 0


def _requests(admission: Admission) -> list[tuple[int, int]]:
    return [
        (request, restored) if request >= 0 else (0, 0)
        for request, restored in zip(admission.rows.tolist(), admission.restored_tokens.tolist(), strict=True)
    ]


def _unwritten(
    filter_: WrittenRows, group: GroupRows, table: torch.Tensor, admission: Admission, request: int, positions: range
) -> torch.Tensor:
    """Those of `positions` on this rank whose rows are not found; rows found are put into the current generation."""
    where = torch.arange(positions.start, positions.stop, device=table.device)
    where = where[where // group.group.virtual_block_size < table.shape[1]]
    slots, mine = _slots(group, table[request], where)
    where, slots = where[mine], slots[mine]
    readable = (slots >= 0) & (slots < group.rows.num_slots)
    if where.shape[0] == 0:
        return where
    tokens = admission.token_ids[request, where]
    first, second = fingerprint_reference(group.rows, torch.where(readable, slots, 0), tokens, where)
    word, bits = first & (filter_.words.shape[1] - 1), _bits(second)
    found = readable & ((filter_.words[:, word] & bits) == bits).any(0)
    _put(filter_, word[found], bits[found])
    return where[~found]


def _slots(group: GroupRows, table_row: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The slot of each position on this rank, and whether it is this rank's."""
    geometry = group.group
    within = positions % geometry.virtual_block_size
    mine = within // geometry.cp_interleave % geometry.cp_size == group.cp_rank
    rounds = within // (geometry.cp_interleave * geometry.cp_size)
    offset = rounds * geometry.cp_interleave + within % geometry.cp_interleave
    if geometry.cp_size == 1:
        mine, offset = torch.ones_like(mine), within
    blocks = table_row[positions // geometry.virtual_block_size].long()
    return blocks * geometry.block_size + offset, mine


def _put(filter_: WrittenRows, word: torch.Tensor, bits: torch.Tensor) -> None:
    """PyTorch has no atomic or: rows that share a word take turns."""
    generation = filter_.words[int(filter_.current)]
    while word.shape[0]:
        generation[word] |= bits
        late = (generation[word] & bits) != bits
        word, bits = word[late], bits[late]


def _bits(second: torch.Tensor) -> torch.Tensor:
    one = torch.ones_like(second)
    return one << (second & 63) | one << (second >> 6 & 63) | one << (second >> 12 & 63) | one << (second >> 18 & 63)


def _mix(word: torch.Tensor) -> torch.Tensor:
    word = word & WORD
    word = ((word ^ (word >> 16)) * 0x85EBCA6B) & WORD
    word = ((word ^ (word >> 13)) * 0xC2B2AE35) & WORD
    return word ^ (word >> 16)
