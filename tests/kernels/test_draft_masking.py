"""Draft masking hides the same tokens in every draft group, and never those that the query needs."""

import pytest
import torch
from dspark_kernels.block_table_shift import ShiftShape
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup, hidden_alignment
from dspark_kernels.draft_masking import mask_draft_context
from dspark_kernels.reference import mask_draft_context_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.tables import GUARD, block_table, gap_of, int32

SMALL_CHUNK = ShiftShape(chunk=16, num_warps=1)
SMALL_CHUNK_AHEAD = ShiftShape(chunk=16, num_warps=1, prefetch=True)
EARLY = ShiftShape(chunk=1024, num_warps=4, early=True)
GROUP_SETS = [
    [DraftGroup(16)],
    [DraftGroup(16), DraftGroup(32)],
    [DraftGroup(48), DraftGroup(32), DraftGroup(16, sliding_window=128)],
    [DraftGroup(16, cp_size=4, cp_interleave=8), DraftGroup(32)],
]


def tables_for(groups: list[DraftGroup], rows: int, max_tokens: int, device: torch.device) -> list[torch.Tensor]:
    return [
        block_table(rows, -(-max_tokens // group.virtual_block_size), device, gap=index)
        for index, group in enumerate(groups)
    ]


@pytest.mark.parametrize(
    "shape", [None, SMALL_CHUNK, SMALL_CHUNK_AHEAD, EARLY], ids=["default", "small", "ahead", "early"]
)
@pytest.mark.parametrize("separate", [False, True], ids=["in place", "second buffer"])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("groups", GROUP_SETS, ids=["one", "two", "three", "context parallel"])
def test_lengths_and_rows_of_all_groups_are_as_the_reference_says(
    device: torch.device,
    groups: list[DraftGroup],
    index_dtype: torch.dtype,
    separate: bool,
    shape: ShiftShape | None,
) -> None:
    aligned = hidden_alignment(groups)
    tables = tables_for(groups, 6, 12 * aligned, device)
    seq_lens = int32([7 * aligned + 5, 12 * aligned, 3 * aligned, 8, 2 * aligned + 8, 5 * aligned], device)
    slots = torch.tensor([3, 0, 1, 4, 2, -1], dtype=index_dtype, device=device)
    hidden = int32([aligned, 3 * aligned, 2 * aligned, 4 * aligned, aligned], device)
    before = seq_lens.clone()
    expected_tables, expected_lens = mask_draft_context_reference(groups, tables, seq_lens, slots, hidden, 8)
    output = torch.full_like(seq_lens, GUARD) if separate else None

    mask_draft_context(
        DraftBlockTables(groups, tables), seq_lens, slots, hidden, 8, masked_seq_lens=output, shape=shape
    )

    for table, expected in zip(tables, expected_tables, strict=True):
        torch.testing.assert_close(table, expected, rtol=0, atol=0)
        assert (gap_of(table) == GUARD).all()
    assert torch.equal(seq_lens if output is None else output, expected_lens)
    if output is not None:
        assert torch.equal(seq_lens, before)


def test_no_row_gets_shorter_than_its_query_and_no_block_of_the_query_is_hidden(device: torch.device) -> None:
    groups = [DraftGroup(16)]
    tables = tables_for(groups, 4, 160, device)
    seq_lens, query_lens = int32([40, 40, 5, 32], device), int32([8, 9, 8, 32], device)

    mask_draft_context(
        DraftBlockTables(groups, tables),
        seq_lens,
        int32([0, 0, 0, 0], device),
        int32([64], device),
        query_lens,
    )

    assert seq_lens.tolist() == [8, 24, 5, 32]


def test_a_hidden_length_off_alignment_is_rounded_down(device: torch.device) -> None:
    groups = [DraftGroup(16)]
    tables = tables_for(groups, 1, 160, device)
    row = tables[0][0].clone()
    seq_lens = int32([100], device)

    mask_draft_context(DraftBlockTables(groups, tables), seq_lens, int32([0], device), int32([47], device), 4)

    assert seq_lens.tolist() == [68]
    assert torch.equal(tables[0][0, :5], row[2:7])


def test_rows_with_nothing_hidden_and_padding_rows_stay_bit_identical(device: torch.device) -> None:
    groups = GROUP_SETS[1]
    tables = tables_for(groups, 3, 320, device)
    before = [table.clone() for table in tables]
    seq_lens = int32([100, 200, 300], device)

    mask_draft_context(DraftBlockTables(groups, tables), seq_lens, int32([0, -1, 0], device), int32([0, 64], device), 8)

    assert seq_lens.tolist() == [100, 200, 300]
    assert all(torch.equal(table, kept) for table, kept in zip(tables, before, strict=True))


def test_an_empty_batch_launches_nothing(device: torch.device) -> None:
    groups = [DraftGroup(16)]
    seq_lens = int32([100], device)

    mask_draft_context(
        DraftBlockTables(groups, tables_for(groups, 1, 160, device)), seq_lens, int32([], device), int32([], device), 8
    )

    assert seq_lens.tolist() == [100]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_batch_is_masked_as_the_reference_says(device: torch.device, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3), label="block sizes")
    groups = [DraftGroup(size) for size in sizes]
    rows = data.draw(st.integers(1, 4), label="rows")
    tables = tables_for(groups, rows, 48, device)
    row_of = st.lists(st.integers(0, 48), min_size=rows, max_size=rows)
    seq_lens = int32(data.draw(row_of, label="seq_lens"), device)
    hidden = int32(data.draw(row_of, label="hidden"), device)
    slots = data.draw(st.lists(st.integers(-1, rows - 1), min_size=rows, max_size=rows), label="slots")
    queries = data.draw(st.one_of(st.integers(1, 9), row_of), label="query_lens")
    query_lens = queries if isinstance(queries, int) else int32(queries, device)
    expected_tables, expected_lens = mask_draft_context_reference(
        groups, tables, seq_lens, int32(slots, device), hidden, query_lens
    )
    output = torch.full_like(seq_lens, GUARD) if data.draw(st.booleans(), label="second buffer") else None

    mask_draft_context(
        DraftBlockTables(groups, tables),
        seq_lens,
        int32(slots, device),
        hidden,
        query_lens,
        masked_seq_lens=output,
        shape=SMALL_CHUNK,
    )

    assert torch.equal(seq_lens if output is None else output, expected_lens)
    for table, expected in zip(tables, expected_tables, strict=True):
        torch.testing.assert_close(table, expected, rtol=0, atol=0)


def test_wrong_arguments_are_refused() -> None:
    group, table = DraftGroup(16), torch.zeros(2, 8, dtype=torch.int32)
    tables, two = DraftBlockTables([group], [table]), torch.zeros(2, dtype=torch.int32)

    with pytest.raises(ValueError, match="seq_lens must be a vector"):
        mask_draft_context(tables, two.long(), two, two, 8)
    with pytest.raises(ValueError, match="a block table has 2"):
        mask_draft_context(tables, torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), two, 8)
    with pytest.raises(ValueError, match="query_lens must have at least 2"):
        mask_draft_context(tables, two, two, two, two[:1])
    with pytest.raises(ValueError, match="masked_seq_lens must have at least 2"):
        mask_draft_context(tables, two, two, two, 8, masked_seq_lens=two[:1])
