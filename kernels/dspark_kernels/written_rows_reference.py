"""`written_rows` without kernels: what they are compared with, and what runs where Triton has no device.

It reads and writes the same filter, so the two may even take turns. It is in NumPy, whose unsigned integers are modulo
2^32 by themselves, and which takes a third of PyTorch's time for the few rows of a draft step.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dspark_kernels.cache_cells import LayerCells
from dspark_kernels.written_rows import Admission, GroupRows, RowCells, WrittenRows

Integers = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]
FILTER_BITS = (0, 6, 12, 18)


def fingerprint_reference(
    rows: RowCells, slots: Integers, tokens: Integers, positions: Integers
) -> tuple[Words, Words]:
    """Two words of 32 bits a row, as uint32 [rows].

    With c the sampled cells of the row, i their number over all layers, and all arithmetic modulo 2^32:
    m_i = mix(c_i ^ (i * 0x9E3779B1 + 0x7F4A7C15)), what = mix(token ^ mix(position + 0x9E3779B9)),
    first = mix(sum m_i ^ what), second = mix(sum mix(m_i ^ 0x27D4EB2F) ^ mix(what + 0x165667B1)).
    """
    samples = _array(rows.samples)
    cells = [_array(layer.elements)[_at(layer, slots, samples[at])] for at, layer in enumerate(rows.layers)]
    stored = np.concatenate(cells, axis=1).view(f"u{rows.element_bytes}").astype(np.uint32)
    mixed = _mix(stored ^ _places(stored.shape[1]))
    what = _mix(tokens.astype(np.uint32) ^ _mix(positions.astype(np.uint32) + np.uint32(0x9E3779B9)))
    first = _mix(mixed.sum(1, dtype=np.uint32) ^ what)
    second = _mix(_mix(mixed ^ np.uint32(0x27D4EB2F)).sum(1, dtype=np.uint32) ^ _mix(what + np.uint32(0x165667B1)))
    return first, second


def record_written_rows_reference(
    filter_: WrittenRows, rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> None:
    """See `record_written_rows`."""
    live = np.nonzero(_readable(rows, _array(slots)))[0]
    if not live.size:
        return
    where = _array(slots)[live]
    first, second = fingerprint_reference(rows, where, _array(tokens)[live], _array(positions)[live])
    with _written(rows.recorded) as recorded:
        recorded[where] = (first ^ second).view(np.int32)
    _put(filter_, _word(filter_, first), _bits(second))


def find_unwritten_rows_reference(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, past_unwritten: torch.Tensor
) -> None:
    """See `find_unwritten_rows`."""
    token_ids = _array(admission.token_ids)
    for group, (table, coming) in zip(groups, admission.by_group(), strict=True):
        for at, (request, restored) in enumerate(_requests(admission)):
            positions, slots = _rows_on_rank(
                group, _array(table)[request], range(_first_seen(group, restored), restored)
            )
            found, word, bits = _look_up(filter_, group.rows, slots, token_ids[request, positions], positions)
            comes = np.isin(slots, _array(coming)) & _readable(group.rows, slots)
            _put(filter_, word[found & ~comes], bits[found & ~comes])
            unwritten = positions[~(found | comes)]
            if unwritten.size:
                past_unwritten[at] = max(int(past_unwritten[at]), int(unwritten.max()) + 1)


def zero_unwritten_rows_reference(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, alignment: int
) -> None:
    """See `zero_unwritten_rows`."""
    token_ids = _array(admission.token_ids)
    for group, (table, coming) in zip(groups, admission.by_group(), strict=True):
        for request, restored in _requests(admission):
            first = max(restored - restored % alignment, _first_seen(group, restored))
            positions, slots = _rows_on_rank(group, _array(table)[request], range(first, restored))
            found, _, _ = _look_up(filter_, group.rows, slots, token_ids[request, positions], positions)
            unwritten = slots[~(found | np.isin(slots, _array(coming))) & _readable(group.rows, slots)]
            for at, layer in enumerate(group.rows.layers):
                with _written(layer.elements) as elements:
                    elements[_at(layer, unwritten, _array(group.rows.cells)[at])] = 0


def _array(tensor: torch.Tensor) -> Integers:
    """Of a tensor on the CPU, its own memory."""
    return tensor.cpu().numpy()


@contextmanager
def _written(tensor: torch.Tensor) -> Iterator[Integers]:
    """An array whose values are the tensor's afterwards."""
    array = _array(tensor)
    yield array
    if tensor.device.type != "cpu":
        tensor.copy_(torch.from_numpy(array))


def _requests(admission: Admission) -> list[tuple[int, int]]:
    return [
        (request, restored) if request >= 0 else (0, 0)
        for request, restored in zip(admission.rows.tolist(), admission.restored_tokens.tolist(), strict=True)
    ]


def _first_seen(group: GroupRows, restored: int) -> int:
    window = group.group.sliding_window
    return max(restored - window + 1, 0) if window else 0


def _rows_on_rank(group: GroupRows, table_row: Integers, positions: range) -> tuple[Integers, Integers]:
    """Those of `positions` that are this rank's, and their slots, negative behind the end of the table's row."""
    geometry = group.group
    position = np.arange(positions.start, positions.stop)
    within = position % geometry.virtual_block_size
    offset = within
    if geometry.cp_size > 1:
        turn, of_turn = within // geometry.cp_interleave, within % geometry.cp_interleave
        mine = turn % geometry.cp_size == group.cp_rank
        offset = (turn // geometry.cp_size * geometry.cp_interleave + of_turn)[mine]
        position = position[mine]
    entry = position // geometry.virtual_block_size
    width = table_row.shape[0]
    block = np.where(entry < width, table_row[np.minimum(entry, width - 1)].astype(np.int64), -1)
    return position, block * geometry.block_size + offset


def _readable(rows: RowCells, slots: Integers) -> npt.NDArray[np.bool_]:
    readable: npt.NDArray[np.bool_] = (slots >= 0) & (slots < rows.num_slots)
    return readable


def _at(layer: LayerCells, slots: Integers, cells: Integers) -> Integers:
    """`LayerCells.at`, for some of its cells."""
    block, within = np.divmod(slots.astype(np.int64), layer.block_size)
    indices: Integers = block[:, None] * layer.block_stride + cells[within]
    return indices


def _look_up(
    filter_: WrittenRows, rows: RowCells, slots: Integers, tokens: Integers, positions: Integers
) -> tuple[npt.NDArray[np.bool_], Integers, Integers]:
    """Whether each row is found, its word in a generation, and its bits there."""
    readable = _readable(rows, slots)
    slots = np.where(readable, slots, 0)
    first, second = fingerprint_reference(rows, slots, tokens, positions)
    word, bits = _word(filter_, first), _bits(second)
    in_place = _array(rows.recorded)[slots] == (first ^ second).view(np.int32)
    in_filter = ((_array(filter_.words)[:, word] & bits) == bits).any(0)
    return readable & (in_place | in_filter), word, bits


def _put(filter_: WrittenRows, word: Integers, bits: Integers) -> None:
    """Of equal rows that are new one is counted, as where the kernel's programs come one after the other."""
    with _written(filter_.words) as words:
        generation = words[int(filter_.current)]
        new = (generation[word] & bits) != bits
        filter_.taken += len(set(zip(word[new].tolist(), bits[new].tolist(), strict=True)))
        np.bitwise_or.at(generation, word, bits)


def _word(filter_: WrittenRows, first: Words) -> Integers:
    return first.astype(np.int64) & (filter_.words.shape[1] - 1)


def _bits(second: Words) -> Integers:
    one, of_64 = np.uint64(1), second.astype(np.uint64)
    bits: Integers = np.zeros_like(of_64)
    for shift in FILTER_BITS:
        bits |= one << (of_64 >> np.uint64(shift) & np.uint64(63))
    return bits.view(np.int64)


@lru_cache
def _places(cells: int) -> Words:
    return np.arange(cells, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(0x7F4A7C15)


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return words ^ (words >> np.uint32(16))
