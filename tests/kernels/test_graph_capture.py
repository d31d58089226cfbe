"""Every launch can be captured once and replayed on what its buffers hold by then."""

from collections.abc import Callable

import pytest
import torch
from dspark_kernels.block_table_gather import gather_block_tables
from dspark_kernels.block_table_shift import shift_block_tables
from dspark_kernels.cache_cells import LayerCells
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup, GroupTensors
from dspark_kernels.draft_masking import mask_draft_context
from dspark_kernels.reference import (
    check_admission_reference,
    gather_block_tables_reference,
    mask_draft_context_reference,
    shift_block_tables_reference,
    store_context_tags_reference,
)
from dspark_kernels.slot_tags import check_admission, clear_query_tags, store_context_tags
from dspark_kernels.written_rows import WrittenRows, record_written_rows, row_cells
from dspark_kernels.written_rows_reference import record_written_rows_reference

from tests.kernels.tables import block_table, int32

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="graph capture needs a GPU")


def captured(launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
    launch()  # compiles outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph


def test_a_shift_replays_on_new_values(device: torch.device) -> None:
    table = block_table(4, 100, device)
    shifts, needed = int32([0, 1, 7, 50], device), int32([100, 99, 93, 50], device)
    graph = captured(lambda: shift_block_tables(table, shifts, needed))
    table.copy_(block_table(4, 100, device))
    shifts.copy_(int32([3, 0, 99, 2], device))
    needed.copy_(int32([97, 100, 1, 98], device))
    expected = shift_block_tables_reference(table, shifts, needed)

    graph.replay()

    assert torch.equal(table, expected)


def test_a_gather_replays_on_new_values(device: torch.device) -> None:
    table, output = block_table(4, 100, device), block_table(3, 100, device)
    slots, hidden, needed = int32([0, 1, -1], device), int32([0, 1, 2, 3], device), int32([100, 99, 0], device)
    graph = captured(lambda: gather_block_tables(table, output, slots, hidden, needed))
    slots.copy_(int32([3, -1, 2], device))
    hidden.copy_(int32([9, 8, 7, 60], device))
    needed.copy_(int32([40, 5, 93], device))
    expected = gather_block_tables_reference(table, output, slots, hidden, needed)

    graph.replay()

    assert torch.equal(output, expected)


@pytest.mark.parametrize("groups", [[DraftGroup(16)], [DraftGroup(16), DraftGroup(32)]], ids=["one", "two"])
def test_masking_replays_on_new_values(device: torch.device, groups: list[DraftGroup]) -> None:
    tables = [block_table(3, 100, device) for _ in groups]
    by_address = DraftBlockTables(groups, tables)
    seq_lens, slots, hidden = int32([900, 900, 900], device), int32([0, 1, 2], device), int32([0, 0, 0], device)
    graph = captured(lambda: mask_draft_context(by_address, seq_lens, slots, hidden, 8))
    seq_lens.copy_(int32([1000, 500, 70], device))
    slots.copy_(int32([2, 0, 1], device))
    hidden.copy_(int32([320, 640, 96], device))
    expected_tables, expected_lens = mask_draft_context_reference(groups, tables, seq_lens, slots, hidden, 8)

    graph.replay()

    assert torch.equal(seq_lens, expected_lens)
    assert all(torch.equal(table, expected) for table, expected in zip(tables, expected_tables, strict=True))


def test_tags_and_the_admission_check_replay_on_new_values(device: torch.device) -> None:
    groups, table = [DraftGroup(16)], block_table(2, 10, device)
    tags = torch.zeros(21 * 16, dtype=torch.int32, device=device)
    token_ids = torch.arange(320, dtype=torch.int32, device=device).view(2, 160)
    mapping, query = torch.arange(16, 176, device=device), int32([-1, -1], device)
    positions = torch.arange(160, dtype=torch.int32, device=device)
    slots, restored = int32([-1], device), int32([0], device)
    hidden = int32([-5, -5], device)
    tag_group, tables = GroupTensors("tags", [tags]), DraftBlockTables(groups, [table])

    def step() -> None:
        store_context_tags(tags, mapping, token_ids[0], positions)
        clear_query_tags(tags, query)
        check_admission(tag_group, tables, slots, restored, token_ids, hidden)

    graph = captured(step)
    query.copy_(int32([16 + 40, -1], device))
    slots.fill_(0)
    restored.fill_(128)
    expected_tags = store_context_tags_reference(tags, mapping, token_ids[0], positions)
    expected_tags[16 + 40] = 0
    expected = check_admission_reference(groups, [expected_tags], [table], slots, restored, token_ids, hidden)

    graph.replay()

    assert torch.equal(tags, expected_tags)
    assert torch.equal(hidden, expected)
    assert hidden.tolist() == [48, -5]


def test_recording_written_rows_replays_on_new_rows_and_into_a_new_generation(device: torch.device) -> None:
    block_size, width, capacity = 16, 8, 200
    cells = torch.arange(block_size * width, dtype=torch.int32, device=device).view(block_size, width)
    memory = torch.randint(-999, 999, (25 * block_size * width,), dtype=torch.int16, device=device)
    rows = row_cells([LayerCells(memory, block_size * width, block_size, 25 * block_size, cells)])
    slots, tokens = torch.arange(16, 80, device=device), torch.arange(64, dtype=torch.int32, device=device)
    positions, ours, theirs = (
        torch.arange(64, device=device),
        WrittenRows(capacity, device),
        WrittenRows(capacity, device),
    )
    graph = captured(lambda: record_written_rows(ours, rows, slots, tokens, positions))
    record_written_rows_reference(theirs, rows, slots, tokens, positions)
    for filter_ in (ours, theirs):
        filter_.start_generation()
    slots.copy_(torch.arange(300, 236, -1, device=device))
    slots[::5] = -1
    tokens += 7_000
    positions += 90
    memory.add_(3)
    record_written_rows_reference(theirs, rows, slots, tokens, positions)

    graph.replay()

    assert int(ours.current) == 1
    assert torch.equal(ours.words, theirs.words)
    assert int(ours.taken) == int(theirs.taken) > 0
    assert bool(ours.words[1].any())
