"""The in-place shift gives what its reference gives, and touches nothing else."""

from itertools import pairwise

import pytest
import torch
from dspark_kernels.block_table_shift import (
    ShiftShape,
    candidate_shift_shapes,
    default_shift_shape,
    shift_block_tables,
)
from dspark_kernels.reference import shift_block_tables_reference
from dspark_kernels.unguarded_shift import shift_block_tables_unguarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.tables import GUARD, block_table, gap_of, int32

SMALL_CHUNK = ShiftShape(chunk=16, num_warps=1)
SMALL_CHUNK_AHEAD = ShiftShape(chunk=16, num_warps=1, prefetch=True)
EARLY = ShiftShape(chunk=1024, num_warps=4, early=True)


def shift_and_compare(
    table: torch.Tensor,
    shifts: torch.Tensor,
    needed: torch.Tensor,
    slots: torch.Tensor | None = None,
    shape: ShiftShape | None = None,
) -> None:
    expected = shift_block_tables_reference(table, shifts, needed, slots)

    shift_block_tables(table, shifts, needed, slots, shape=shape)

    torch.testing.assert_close(table, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "shape", [None, SMALL_CHUNK, SMALL_CHUNK_AHEAD, EARLY], ids=["default", "small", "ahead", "early"]
)
@pytest.mark.parametrize("max_blocks", [1, 2, 7, 16, 17, 63, 130, 1000])
@pytest.mark.parametrize("gap", [0, 3])
def test_rows_of_odd_widths_shift_as_the_reference_says(
    device: torch.device, max_blocks: int, gap: int, shape: ShiftShape | None
) -> None:
    shifts = [0, 1, 2, 7, 31, max_blocks // 2, max_blocks - 1, max_blocks]
    table = block_table(len(shifts), max_blocks, device, gap=gap)
    needed = [max(max_blocks - shift, 0) for shift in shifts]

    shift_and_compare(table, int32(shifts, device), int32(needed, device), shape=shape)

    assert (gap_of(table) == GUARD).all()


@pytest.mark.parametrize("max_blocks", [8192, 65_535, 65_536])
def test_the_longest_rows_shift_as_the_reference_says(device: torch.device, max_blocks: int) -> None:
    table = block_table(3, max_blocks, device)
    shifts = int32([1, 97, max_blocks - 5], device)

    shift_and_compare(table, shifts, max_blocks - shifts)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_the_mapping_selects_the_shift_of_the_rows_request_slot(device: torch.device, index_dtype: torch.dtype) -> None:
    table = block_table(4, 40, device)
    shift_of_slot = int32([5, 0, 11, 3, 39], device)
    slots = torch.tensor([4, 2, 1, 0], dtype=index_dtype, device=device)

    shift_and_compare(table, shift_of_slot, int32([1, 29, 40, 35], device), slots)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_padding_rows_stay_untouched(device: torch.device, index_dtype: torch.dtype) -> None:
    table = block_table(3, 20, device)
    before = table.clone()
    slots = torch.tensor([-1, 0, -1], dtype=index_dtype, device=device)

    shift_block_tables(table, int32([4], device), int32([16, 16, 16], device), slots)

    assert torch.equal(table[0], before[0])
    assert torch.equal(table[2], before[2])
    assert torch.equal(table[1, :16], before[1, 4:])


def test_only_needed_blocks_are_moved(device: torch.device) -> None:
    table = block_table(1, 50, device)
    before = table.clone()

    shift_block_tables(table, int32([10], device), int32([6], device), shape=SMALL_CHUNK)

    assert torch.equal(table[0, :6], before[0, 10:16])
    assert torch.equal(table[0, 6:], before[0, 6:])


def test_a_row_that_needs_more_than_it_has_is_read_to_its_end_only(device: torch.device) -> None:
    table = block_table(2, 30, device)
    before = table.clone()

    shift_block_tables(table, int32([25, 31], device), int32([30, 30], device))

    assert torch.equal(table[0, :5], before[0, 25:])
    assert torch.equal(table[0, 5:], before[0, 5:])
    assert torch.equal(table[1], before[1])


def test_rows_beyond_the_batch_stay_untouched(device: torch.device) -> None:
    table = block_table(5, 12, device)
    before = table.clone()

    shift_block_tables(table, int32([2, 3], device), int32([10, 9], device))

    assert torch.equal(table[2:], before[2:])


def test_an_empty_batch_launches_nothing(device: torch.device) -> None:
    table = block_table(2, 12, device)
    before = table.clone()

    shift_block_tables(table, int32([], device), int32([], device))
    shift_block_tables(table, int32([1], device), int32([], device), int32([], device))

    assert torch.equal(table, before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the control is free to be wrong")
def test_the_control_differs_by_its_barrier_only(device: torch.device) -> None:
    table = block_table(3, 100, device)
    shifts, needed = int32([1, 0, 13], device), int32([99, 100, 80], device)
    expected = shift_block_tables_reference(table, shifts, needed)

    shift_block_tables_unguarded(table, shifts, needed, shape=SMALL_CHUNK)  # the interpreter has no warps to race

    assert torch.equal(table, expected)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_batch_shifts_as_the_reference_says(device: torch.device, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 5), label="rows")
    max_blocks = data.draw(st.integers(1, 80), label="max_blocks")
    gap = data.draw(st.integers(0, 5), label="gap")
    blocks = st.lists(st.integers(-2, max_blocks + 3), min_size=rows, max_size=rows)
    slots = data.draw(st.lists(st.integers(-1, rows - 1), min_size=rows, max_size=rows), label="slots")
    shape = data.draw(st.sampled_from([SMALL_CHUNK, SMALL_CHUNK_AHEAD, EARLY, None]), label="shape")
    table = block_table(rows, max_blocks, device, gap=gap)
    shifts = int32(data.draw(blocks, label="shifts"), device)
    needed = int32(data.draw(blocks, label="needed"), device)

    shift_and_compare(table, shifts, needed, int32(slots, device), shape)

    assert (gap_of(table) == GUARD).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": torch.zeros(2, 8, dtype=torch.int64)}, "int32 matrix"),
        ({"table": torch.zeros(8, 2, dtype=torch.int32).T}, "contiguous"),
        ({"table": torch.zeros(1, 8, dtype=torch.int32).expand(2, 8)}, "overlap"),
        ({"shift_blocks": torch.zeros(2)}, "shift_blocks must be a vector of torch.int32"),
        ({"shift_blocks": torch.zeros(1, dtype=torch.int32)}, "at least 2 entries"),
        ({"needed_blocks": torch.zeros(3, dtype=torch.int32)}, "the table has 2"),
        ({"needed_blocks": torch.zeros(4, dtype=torch.int32)[::2]}, "contiguous"),
        ({"request_slots": torch.zeros(2)}, "torch.int32 or torch.int64"),
        ({"shift_blocks": torch.zeros(2, dtype=torch.int32, device="meta")}, "meta"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, torch.Tensor], message: str) -> None:
    arguments = {
        "table": torch.zeros(2, 8, dtype=torch.int32),
        "shift_blocks": torch.zeros(2, dtype=torch.int32),
        "needed_blocks": torch.zeros(2, dtype=torch.int32),
    }

    with pytest.raises(ValueError, match=message):
        shift_block_tables(**(arguments | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [0, 3, -4])
def test_a_chunk_must_be_a_power_of_two(chunk: int) -> None:
    with pytest.raises(ValueError, match="chunk must be a power of two"):
        ShiftShape(chunk=chunk, num_warps=4)


@pytest.mark.parametrize("max_blocks", [1, 100, 1024, 8192, 32_768, 65_536])
def test_candidate_shapes_start_with_the_default_and_repeat_none(max_blocks: int) -> None:
    shapes = candidate_shift_shapes(max_blocks)

    assert shapes[0] == default_shift_shape(max_blocks)
    assert len(shapes) == len(set(shapes))


def test_default_shapes_grow_with_the_row() -> None:
    shapes = [default_shift_shape(max_blocks) for max_blocks in (1, 64, 512, 4096, 65_536)]

    assert all(narrow.chunk <= wide.chunk and narrow.num_warps <= wide.num_warps for narrow, wide in pairwise(shapes))
