"""The offset gather gives what its reference gives, into a destination that was poisoned before."""

from itertools import product

import pytest
import torch
from dspark_kernels.block_table_gather import (
    GatherShape,
    candidate_gather_shapes,
    default_gather_shape,
    gather_block_tables,
)
from dspark_kernels.block_table_shift import shift_block_tables
from dspark_kernels.reference import gather_block_tables_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.tables import GUARD, block_table, gap_of, int32

POISON = -12345
SMALL_CHUNK = GatherShape(chunk=16, num_warps=1)


def poisoned(rows: int, max_blocks: int, device: torch.device, *, gap: int = 0) -> torch.Tensor:
    table = block_table(rows, max_blocks, device, gap=gap)
    return table.fill_(POISON)


@pytest.mark.parametrize("shape", [None, SMALL_CHUNK], ids=["default", "small"])
@pytest.mark.parametrize(("max_blocks", "gap"), list(product([1, 7, 16, 33, 1000], [0, 5])))
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_rows_of_odd_widths_are_gathered_as_the_reference_says(
    device: torch.device, max_blocks: int, gap: int, index_dtype: torch.dtype, shape: GatherShape | None
) -> None:
    table = block_table(5, max_blocks, device, gap=gap)
    output = poisoned(6, max_blocks, device, gap=2 * gap)
    slots = torch.tensor([3, 0, -1, 4, -1], dtype=index_dtype, device=device)
    hidden = int32([0, 7, 1, max_blocks // 2, max_blocks - 1], device)
    needed = int32([max_blocks, max_blocks, 9, 1, 0], device)
    expected = gather_block_tables_reference(table, output, slots, hidden, needed)

    gather_block_tables(table, output, slots, hidden, needed, shape=shape)

    torch.testing.assert_close(output, expected, rtol=0, atol=0)
    assert (gap_of(output) == GUARD).all()
    assert (output[5] == POISON).all()


@pytest.mark.parametrize("max_blocks", [65_535, 65_536])
def test_the_longest_rows_are_gathered_as_the_reference_says(device: torch.device, max_blocks: int) -> None:
    table, output = block_table(2, max_blocks, device), poisoned(2, max_blocks, device)
    slots, hidden, needed = int32([1, 0], device), int32([97, 0], device), int32([max_blocks, max_blocks - 97], device)
    expected = gather_block_tables_reference(table, output, slots, hidden, needed)

    gather_block_tables(table, output, slots, hidden, needed)

    assert torch.equal(output, expected)


def test_a_gather_equals_a_plain_gather_followed_by_the_in_place_shift(device: torch.device) -> None:
    table = block_table(4, 300, device)
    slots, hidden = int32([2, 3, 0], device), int32([11, 0, 130, 299], device)
    needed = int32([170, 1, 289], device)
    output = torch.zeros(3, 300, dtype=torch.int32, device=device)
    in_place = table[slots.long()]

    gather_block_tables(table, output, slots, hidden, needed)
    shift_block_tables(in_place, hidden, needed, slots)

    for row, count in enumerate(needed.tolist()):
        assert torch.equal(output[row, :count], in_place[row, :count])


def test_an_output_narrower_than_the_table_is_filled_to_its_end_only(device: torch.device) -> None:
    table, output = block_table(2, 60, device), poisoned(2, 20, device, gap=8)

    gather_block_tables(table, output, int32([1, -1], device), int32([0, 5], device), int32([60, 60], device))

    assert torch.equal(output[0], table[1, 5:25])
    assert (output[1] == 0).all()
    assert (gap_of(output) == GUARD).all()


def test_an_empty_batch_launches_nothing(device: torch.device) -> None:
    output = poisoned(2, 8, device)

    gather_block_tables(block_table(2, 8, device), output, int32([], device), int32([0, 0], device), int32([], device))

    assert (output == POISON).all()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_batch_is_gathered_as_the_reference_says(device: torch.device, data: st.DataObject) -> None:
    requests = data.draw(st.integers(1, 5), label="requests")
    rows = data.draw(st.integers(1, 5), label="rows")
    max_blocks = data.draw(st.integers(1, 70), label="max_blocks")
    output_blocks = data.draw(st.integers(1, 70), label="output_blocks")
    blocks = st.integers(-2, max_blocks + 3)
    table = block_table(requests, max_blocks, device, gap=data.draw(st.integers(0, 4), label="gap"))
    output = poisoned(rows, output_blocks, device, gap=3)
    slots = data.draw(st.lists(st.integers(-1, requests - 1), min_size=rows, max_size=rows), label="slots")
    hidden = int32(data.draw(st.lists(blocks, min_size=requests, max_size=requests), label="hidden"), device)
    needed = int32(data.draw(st.lists(blocks, min_size=rows, max_size=rows), label="needed"), device)
    expected = gather_block_tables_reference(table, output, int32(slots, device), hidden, needed)

    gather_block_tables(table, output, int32(slots, device), hidden, needed, shape=SMALL_CHUNK)

    torch.testing.assert_close(output, expected, rtol=0, atol=0)
    assert (gap_of(output) == GUARD).all()


def test_wrong_arguments_are_refused() -> None:
    table, output = torch.zeros(2, 8, dtype=torch.int32), torch.zeros(2, 8, dtype=torch.int32)
    two = torch.zeros(2, dtype=torch.int32)

    with pytest.raises(ValueError, match="same memory"):
        gather_block_tables(table, table, two, two, two)
    with pytest.raises(ValueError, match="output must be an int32 matrix"):
        gather_block_tables(table, output.long(), two, two, two)
    with pytest.raises(ValueError, match="hidden_blocks must have at least 2"):
        gather_block_tables(table, output, two, two[:1], two)
    with pytest.raises(ValueError, match="needed_blocks must have at least 2"):
        gather_block_tables(table, output, two, two, two[:1])
    with pytest.raises(ValueError, match="output has 1"):
        gather_block_tables(table, output[:1], two, two, two)
    with pytest.raises(ValueError, match="chunk must be a power of two"):
        GatherShape(chunk=100, num_warps=1)


@pytest.mark.parametrize("max_blocks", [1, 100, 8192, 65_536])
def test_candidate_shapes_start_with_the_default_and_repeat_none(max_blocks: int) -> None:
    shapes = candidate_gather_shapes(max_blocks)

    assert shapes[0] == default_gather_shape(max_blocks)
    assert len(shapes) == len(set(shapes))
