"""`written_rows` without kernels: what they are compared with, and what runs where Triton has no device.

It reads and writes the same filter, so the two may even take turns. Fingerprints are made with NumPy, whose unsigned
integers are modulo 2^32 by themselves, at half of PyTorch's time where rows are few.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from dspark_kernels.written_rows import Admission, GroupRows, RowCells, WrittenRows

Words = npt.NDArray[np.uint32]


def fingerprint_reference(
    rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two words of 32 bits a row, as int64 [rows].

    With c the sampled cells of the row, i their number over all layers, and all arithmetic modulo 2^32:
    m_i = mix(c_i ^ (i * 0x9E3779B1 + 0x7F4A7C15)), what = mix(token ^ mix(position + 0x9E3779B9)),
    first = mix(sum m_i ^ what), second = mix(sum mix(m_i ^ 0x27D4EB2F) ^ mix(what + 0x165667B1)).
    """
    cells = [layer.elements[layer.at(slots, rows.samples[at])] for at, layer in enumerate(rows.layers)]
    stored = torch.cat(cells, dim=1).cpu().numpy().view(f"u{rows.element_bytes}").astype(np.uint32)
    mixed = _mix(stored ^ _places(stored.shape[1]))
    what = _mix(_words(tokens) ^ _mix(_words(positions) + np.uint32(0x9E3779B9)))
    first = _mix(mixed.sum(1, dtype=np.uint32) ^ what)
    second = _mix(_mix(mixed ^ np.uint32(0x27D4EB2F)).sum(1, dtype=np.uint32) ^ _mix(what + np.uint32(0x165667B1)))
    return _on(slots.device, first), _on(slots.device, second)


@lru_cache
def _places(cells: int) -> Words:
    return np.arange(cells, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(0x7F4A7C15)


def _words(integers: torch.Tensor) -> Words:
    return integers.cpu().numpy().astype(np.uint32)


def _on(device: torch.device, words: Words) -> torch.Tensor:
    return torch.from_numpy(words.astype(np.int64)).to(device)


def record_written_rows_reference(
    filter_: WrittenRows, rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> None:
    """See `record_written_rows`."""
    live = _readable(rows, slots).nonzero().squeeze(1)
    if live.shape[0] == 0:
        return
    first, second = fingerprint_reference(rows, slots[live], tokens[live], positions[live])
    rows.recorded[slots[live].long()] = _slot_mark(first, second)
    _put(filter_, first & (filter_.words.shape[1] - 1), _bits(second))


def find_unwritten_rows_reference(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, past_unwritten: torch.Tensor
) -> None:
    """See `find_unwritten_rows`."""
    for group, (table, coming) in zip(groups, admission.by_group(), strict=True):
        for at, (request, restored) in enumerate(_requests(admission)):
            positions, slots = _rows_on_rank(group, table[request], range(_first_seen(group, restored), restored))
            found, word, bits = _look_up(filter_, group.rows, slots, admission.token_ids[request, positions], positions)
            comes = torch.isin(slots, coming) & _readable(group.rows, slots)
            _put(filter_, word[found & ~comes], bits[found & ~comes])
            unwritten = positions[~(found | comes)]
            if unwritten.shape[0]:
                past_unwritten[at] = max(int(past_unwritten[at]), int(unwritten.max()) + 1)


def zero_unwritten_rows_reference(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, alignment: int
) -> None:
    """See `zero_unwritten_rows`."""
    for group, (table, coming) in zip(groups, admission.by_group(), strict=True):
        for request, restored in _requests(admission):
            first = max(restored - restored % alignment, _first_seen(group, restored))
            positions, slots = _rows_on_rank(group, table[request], range(first, restored))
            found, _, _ = _look_up(filter_, group.rows, slots, admission.token_ids[request, positions], positions)
            unwritten = slots[~(found | torch.isin(slots, coming)) & _readable(group.rows, slots)]
            for at, layer in enumerate(group.rows.layers):
                layer.elements[layer.at(unwritten, group.rows.cells[at])] = 0


def _requests(admission: Admission) -> list[tuple[int, int]]:
    return [
        (request, restored) if request >= 0 else (0, 0)
        for request, restored in zip(admission.rows.tolist(), admission.restored_tokens.tolist(), strict=True)
    ]


def _first_seen(group: GroupRows, restored: int) -> int:
    window = group.group.sliding_window
    return max(restored - window + 1, 0) if window else 0


def _rows_on_rank(group: GroupRows, table_row: torch.Tensor, positions: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of `positions` that are this rank's, and their slots, negative behind the end of the table's row."""
    geometry = group.group
    position = torch.arange(positions.start, positions.stop, device=table_row.device)
    within = position % geometry.virtual_block_size
    offset = within
    if geometry.cp_size > 1:
        turn, of_turn = within // geometry.cp_interleave, within % geometry.cp_interleave
        mine = turn % geometry.cp_size == group.cp_rank
        offset = (turn // geometry.cp_size * geometry.cp_interleave + of_turn)[mine]
        position = position[mine]
    entry = position // geometry.virtual_block_size
    width = table_row.shape[0]
    block = torch.where(entry < width, table_row[entry.clamp(max=width - 1)].long(), -1)
    return position, block * geometry.block_size + offset


def _readable(rows: RowCells, slots: torch.Tensor) -> torch.Tensor:
    return (slots >= 0) & (slots < rows.num_slots)


def _look_up(
    filter_: WrittenRows, rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Whether each row is found, its word in a generation, and its bits there."""
    readable = _readable(rows, slots)
    slots = torch.where(readable, slots, 0)
    first, second = fingerprint_reference(rows, slots, tokens, positions)
    word, bits = first & (filter_.words.shape[1] - 1), _bits(second)
    in_place = rows.recorded[slots] == _slot_mark(first, second)
    return readable & (in_place | ((filter_.words[:, word] & bits) == bits).any(0)), word, bits


def _put(filter_: WrittenRows, word: torch.Tensor, bits: torch.Tensor) -> None:
    """PyTorch has no atomic or: rows that share a word take turns. Of equal rows that are new one is counted, as where
    the kernel's programs come one after the other."""
    generation = filter_.words[int(filter_.current)]
    new = (generation[word] & bits) != bits
    filter_.taken += len(set(zip(word[new].tolist(), bits[new].tolist(), strict=True)))
    while word.shape[0]:
        generation[word] |= bits
        late = (generation[word] & bits) != bits
        word, bits = word[late], bits[late]


def _slot_mark(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    mark = first ^ second
    return (mark - ((mark >> 31) << 32)).int()


def _bits(second: torch.Tensor) -> torch.Tensor:
    one = torch.ones_like(second)
    return one << (second & 63) | one << (second >> 6 & 63) | one << (second >> 12 & 63) | one << (second >> 18 & 63)


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return words ^ (words >> np.uint32(16))
