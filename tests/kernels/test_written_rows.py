"""A restored row is known by its content: found if the drafter wrote it, hidden or zeroed if not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from dspark_kernels import written_rows
from dspark_kernels.cache_cells import LayerCells
from dspark_kernels.draft_groups import DraftGroup, hidden_alignment
from dspark_kernels.written_rows import (
    SAMPLES,
    Admission,
    GroupRows,
    WrittenRows,
    find_unwritten_rows,
    record_written_rows,
    row_cells,
    words_for,
    zero_unwritten_rows,
)
from dspark_kernels.written_rows_reference import (
    find_unwritten_rows_reference,
    record_written_rows_reference,
    zero_unwritten_rows_reference,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.tables import int32

WIDTH = 5  # elements of a slot's K, and of its V; fewer than SAMPLES, so all of them are in the fingerprint


@dataclass
class Store:
    """Draft groups whose requests own distinct blocks. A row's content depends on request, position and layer alone, so
    stores of one seed hold the same, wherever their tables and ranks put it. Nothing is recorded yet."""

    groups: list[GroupRows]
    tables: list[torch.Tensor]
    token_ids: torch.Tensor
    written: WrittenRows

    def slots(self, group: int, request: int, positions: Iterable[int]) -> torch.Tensor:
        """int64, PAD (-1) for what is another rank's."""
        geometry, rank = self.groups[group].group, self.groups[group].cp_rank
        row, slots = self.tables[group][request].tolist(), []
        for position in positions:
            entry, within = divmod(position, geometry.virtual_block_size)
            turn, of_turn = divmod(within, geometry.cp_interleave)
            offset = turn // geometry.cp_size * geometry.cp_interleave + of_turn
            slots.append(row[entry] * geometry.block_size + offset if turn % geometry.cp_size == rank else -1)
        return torch.tensor(slots, dtype=torch.int64, device=self.token_ids.device)

    def row(self, group: int, layer: int, request: int, position: int) -> torch.Tensor:
        """Indices into the layer's elements."""
        return self.groups[group].rows.layers[layer].at(self.slots(group, request, [position]))[0]

    def record(self, request: int, positions: Sequence[int], *, kernel: bool = True) -> None:
        where = torch.tensor(positions, dtype=torch.int64, device=self.token_ids.device)
        record = record_written_rows if kernel else record_written_rows_reference
        for group, rows in enumerate(self.groups):
            slots = self.slots(group, request, positions)
            record(self.written, rows.rows, slots, self.token_ids[request, where], where)

    def admission(self, rows: Sequence[int], restored: Sequence[int]) -> Admission:
        device = self.token_ids.device
        most = max(restored, default=0)
        return Admission(int32(rows, device), int32(restored, device), most, self.token_ids, tuple(self.tables))

    def coming(self, request: int, positions: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Slots of rows that the step under way is about to store, and two that are none."""
        none = torch.tensor([-1, 2**31 - 1], device=self.token_ids.device)
        return tuple(torch.cat([none, self.slots(group, request, positions)]) for group in range(len(self.groups)))

    def past_unwritten(self, request: int, restored: int, coming: tuple[torch.Tensor, ...] = ()) -> int:
        past = int32([0], self.token_ids.device)
        admission = replace(self.admission([request], [restored]), coming=coming)
        find_unwritten_rows(self.written, self.groups, admission, past)
        return int(past)

    def forget_slots(self) -> None:
        """As if all rows had come back to other slots: the filter alone knows them."""
        for group in self.groups:
            group.rows.recorded.zero_()

    def memory(self) -> list[torch.Tensor]:
        return [layer.elements.clone() for group in self.groups for layer in group.rows.layers]


def store_of(
    groups: Sequence[DraftGroup],
    device: torch.device,
    *,
    requests: int = 3,
    max_tokens: int = 100,
    layers: int = 2,
    element: torch.dtype = torch.int16,
    width: int = WIDTH,
    cp_ranks: Sequence[int] | None = None,
    kernel_blocks: int = 1,
    seed: int = 0,
) -> Store:
    """kernel_blocks: blocks of the attention kernel in one of the manager's, where they divide it."""
    draw = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(0, 150_000, (requests, max_tokens), generator=draw, dtype=torch.int32)
    info = torch.iinfo(element)
    content = torch.randint(info.min, info.max, (len(groups), layers, requests, max_tokens, 2 * width), generator=draw)
    store = Store([], [], token_ids.to(device), WrittenRows(requests * max_tokens * 2, device))
    for number, (group, rank) in enumerate(zip(groups, cp_ranks or [0] * len(groups), strict=True)):
        blocks = -(-max_tokens // group.virtual_block_size)
        table = 1 + torch.randperm(requests * blocks, generator=draw).to(torch.int32).view(requests, blocks)
        kernel_block = group.block_size // (kernel_blocks if group.block_size % kernel_blocks == 0 else 1)
        num_slots = (requests * blocks + 1) * group.block_size
        rows = row_cells([fresh_layer(num_slots, kernel_block, width, element, device) for _ in range(layers)])
        store.groups.append(GroupRows(group, rows, rank))
        store.tables.append(table.to(device))
        for request in range(requests):
            slots = store.slots(number, request, range(max_tokens))
            for layer, cells in enumerate(rows.layers):
                values = content[number, layer, request].to(device, element)
                cells.elements[cells.at(slots[slots >= 0])] = values[slots >= 0]
    return store


def fresh_layer(num_slots: int, block_size: int, width: int, element: torch.dtype, device: torch.device) -> LayerCells:
    """All K in front of all V, in pages a few elements longer than their rows. All is 77, block 0 too."""
    stride = block_size * width + 3
    memory = torch.full((2, num_slots // block_size, stride), 77, dtype=element, device=device)
    keys = torch.arange(block_size * width, dtype=torch.int32, device=device).view(block_size, width)
    cells = torch.cat([keys, keys + memory.stride(0)], dim=1)
    return LayerCells(memory.view(-1), stride, block_size, num_slots, cells)


@pytest.mark.parametrize("restored", [1, 31, 32, 33, 100])
def test_rows_that_were_written_are_found(device: torch.device, restored: int) -> None:
    store = store_of([DraftGroup(16)], device)

    store.record(1, range(100))

    assert store.past_unwritten(1, restored) == 0


def test_rows_that_were_never_written_are_not_found(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(1, [*range(70), *range(71, 100)])

    assert store.past_unwritten(0, 50) == 50
    assert store.past_unwritten(1, 100) == 71
    assert store.past_unwritten(1, 71) == 71
    assert store.past_unwritten(1, 70) == 0


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("cell", [0, 2 * WIDTH - 1])
def test_a_row_damaged_in_any_layer_is_not_found(device: torch.device, group: int, layer: int, cell: int) -> None:
    store = store_of([DraftGroup(16), DraftGroup(8)], device, layers=3)
    store.record(2, range(60))

    store.groups[group].rows.layers[layer].elements[store.row(group, layer, 2, 40)[cell]] += 1

    assert store.past_unwritten(2, 60) == 41


@pytest.mark.parametrize("cell", [0, 499])
def test_the_first_and_the_last_cell_of_a_long_row_are_in_its_fingerprint(device: torch.device, cell: int) -> None:
    store = store_of([DraftGroup(4)], device, max_tokens=8, width=250)
    store.record(0, range(8))

    store.groups[0].rows.layers[1].elements[store.row(0, 1, 0, 2)[cell]] += 1

    assert store.groups[0].rows.samples.shape[2] == SAMPLES
    assert store.past_unwritten(0, 8) == 3


def test_a_row_moved_to_another_slot_with_its_content_is_found(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))
    old, new = store.slots(0, 0, range(16, 32)), store.slots(0, 1, range(64, 80))
    for layer in store.groups[0].rows.layers:
        layer.elements[layer.at(new)] = layer.elements[layer.at(old)]

    store.tables[0][0, 1] = store.tables[0][1, 4]

    assert store.past_unwritten(0, 48) == 0


@pytest.mark.parametrize("moved_by", [16, 1])
def test_a_row_of_another_position_is_not_found(device: torch.device, moved_by: int) -> None:
    store = store_of([DraftGroup(1)], device)
    store.token_ids[0] = 5
    store.record(0, range(48))

    store.tables[0][0, 20] = store.tables[0][0, 20 + moved_by]

    assert store.past_unwritten(0, 48) == 21


def test_a_row_of_another_token_is_not_found(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))

    store.token_ids[0, 20] += 1

    assert store.past_unwritten(0, 48) == 21


def test_the_row_furthest_back_in_any_group_decides(device: torch.device) -> None:
    store = store_of([DraftGroup(16), DraftGroup(48)], device)
    store.record(0, range(96))
    store.groups[1].rows.layers[0].elements[store.row(1, 0, 0, 50)] = 0
    store.groups[0].rows.layers[0].elements[store.row(0, 0, 0, 20)] = 0

    assert store.past_unwritten(0, 96) == 51


def test_an_answer_is_only_ever_raised(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    past = int32([7, 80, -3], device)

    find_unwritten_rows(store.written, store.groups, store.admission([0, 1, -1], [50, 50, 50]), past)

    assert past.tolist() == [50, 80, -3]


def test_a_sliding_window_group_is_judged_on_what_its_queries_can_see(device: torch.device) -> None:
    store = store_of([DraftGroup(16, sliding_window=20)], device)
    store.record(0, range(60, 80))

    assert store.past_unwritten(0, 80) == 0
    assert store.past_unwritten(0, 79) == 0
    assert store.past_unwritten(0, 78) == 60


def test_a_position_that_no_block_can_hold_is_not_found(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(96))
    store.tables[0][0, 1] = -1
    store.tables[0][0, 3] = 1 << 30
    everywhere = torch.arange(100, device=device)
    record_written_rows(store.written, store.groups[0].rows, everywhere % 16, store.token_ids[0], everywhere)  # block 0
    narrow = replace(store, tables=[store.tables[0][:, :5]])

    assert store.past_unwritten(0, 96) == 64
    assert store.past_unwritten(0, 48) == 32
    assert narrow.past_unwritten(0, 90) == 90


def test_padding_and_slots_behind_the_cache_are_not_recorded(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    rows = store.groups[0].rows
    blocks = 1 + store.tables[0].numel()
    slots = torch.tensor([-1, blocks * 16, 2 * blocks * 16 - 1, 1 << 40], device=device)
    anything = torch.arange(4, device=device)

    record_written_rows(store.written, rows, slots, anything, anything)

    assert not store.written.words.any()
    assert not rows.recorded.any()


def test_a_row_that_is_read_survives_any_number_of_generations(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))
    store.forget_slots()
    answers = []

    for _ in range(5):
        store.written.start_generation()
        answers.append(store.past_unwritten(0, 48))

    assert answers == [0, 0, 0, 0, 0]


def test_a_row_that_is_not_read_is_forgotten_after_two_generations(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))
    store.forget_slots()
    store.written.start_generation()
    words = store.written.words.clone()

    assert store.past_unwritten(0, 48) == 0
    store.written.words.copy_(words)  # as if it had not been read

    store.written.start_generation()
    assert store.past_unwritten(0, 48) == 48


@pytest.mark.parametrize("kernel", [True, False])
def test_rows_take_room_once_and_rows_without_a_slot_none(device: torch.device, kernel: bool) -> None:
    store = store_of([DraftGroup(16)], device)
    rows, positions = store.groups[0].rows, torch.arange(40, device=device)
    slots = store.slots(0, 0, range(40))
    slots[::4] = -1
    record = record_written_rows if kernel else record_written_rows_reference
    taken = []

    for _ in range(2):
        record(store.written, rows, slots, positions, positions)
        taken.append(int(store.written.taken))
    store.written.start_generation()
    taken.append(int(store.written.taken))

    assert taken == [30, 30, 0]


def test_a_row_that_is_read_again_takes_room_in_the_generation_that_it_is_put_into(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))
    store.written.start_generation()

    for _ in range(2):
        store.past_unwritten(0, 48)

    assert int(store.written.taken) == 48


def test_steps_that_store_nothing_new_forget_nothing(device: torch.device) -> None:
    """A decode step verifies more rows than it keeps, and says so before any of them is stored."""
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))

    for _ in range(10):
        store.written.expect(store.written.capacity)

    assert int(store.written.current) == 0
    assert store.past_unwritten(0, 48) == 0


def test_a_generation_ends_when_as_many_rows_were_stored_as_it_takes(device: torch.device) -> None:
    written = WrittenRows(64, device)
    turns = []

    for stored in (100, 28, 1, 1):
        written.taken += stored
        for _ in range(3):  # the device's answer may come a call later
            written.expect(stored)
            if device.type == "cuda":
                torch.cuda.synchronize()
        turns.append(int(written.current))

    assert written.capacity == 128
    assert turns == [0, 0, 1, 1]


@pytest.mark.parametrize("remembered", [1, 3])
@pytest.mark.parametrize(("more", "forgotten"), [(0, False), (2, True)])
def test_a_row_is_forgotten_after_as_many_cachefuls_as_were_asked_for_and_not_before(
    device: torch.device, remembered: int, more: int, forgotten: bool
) -> None:
    slots_in_cache = 64
    store = store_of([DraftGroup(16)], device)
    store.written = WrittenRows(slots_in_cache, device, remembered)
    store.record(0, range(48))
    cachefuls = remembered if not forgotten else 2 * remembered + more

    for step in range(cachefuls * slots_in_cache // 16):
        for _ in range(2):  # the device's answer may come a call later
            store.written.expect(16)
            if device.type == "cuda":
                torch.cuda.synchronize()
        tokens = int32([200_000 + 16 * step + row for row in range(16)], device)
        record_written_rows(store.written, store.groups[0].rows, store.slots(0, 1, range(16)), tokens, tokens)

    store.forget_slots()
    assert store.past_unwritten(0, 48) == (48 if forgotten else 0)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "reference"])
def test_a_row_is_known_in_the_slot_where_it_was_written_whatever_else_is_written_since(
    device: torch.device, kernel: bool
) -> None:
    store = store_of([DraftGroup(16), DraftGroup(8)], device, layers=3)
    store.record(0, range(90), kernel=kernel)
    store.written.forget()
    layer = store.groups[1].rows.layers[2]

    before = store.past_unwritten(0, 90)
    layer.elements[store.row(1, 2, 0, 60)[0]] += 1
    damaged = store.past_unwritten(0, 90)
    layer.elements[store.row(1, 2, 0, 60)[0]] -= 1
    store.record(0, range(30, 31), kernel=kernel)
    store.token_ids[0, 30] += 1

    assert before == 0
    assert damaged == 61
    assert store.past_unwritten(0, 90) == 31, "the token of the row is another"


def test_a_row_is_not_known_in_a_slot_where_another_was_written(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(0, range(48))
    store.record(1, range(64, 80))
    store.written.forget()
    old, new = store.slots(0, 0, range(16, 32)), store.slots(0, 1, range(64, 80))
    for cells in store.groups[0].rows.layers:
        cells.elements[cells.at(new)] = cells.elements[cells.at(old)]
    store.tables[0][0, 1] = store.tables[0][1, 4]

    assert store.past_unwritten(0, 48) == 32


def test_a_full_filter_finds_about_one_in_600_rows_that_nobody_wrote(device: torch.device) -> None:
    full, asked = 4096, 20_000
    assert words_for(full) == full // 2, "two rows a word, the most"
    store = store_of([DraftGroup(16)], device, requests=1, max_tokens=asked, layers=1, seed=1)
    store.written = WrittenRows(full // 2, device)
    assert store.written.capacity == full
    rows, layer = store.groups[0].rows, store.groups[0].rows.layers[0]
    for first in (0, full):
        store.written.start_generation()
        slots = torch.arange(16 + first, 16 + first + full, device=device)
        record_written_rows_reference(store.written, rows, slots, slots + 1_000_000, slots)

    # Zeroing all that is not found tells the rows apart in one go.
    zero_unwritten_rows_reference(store.written, store.groups, store.admission([0], [asked - 1]), asked)

    found = layer.elements[layer.at(store.slots(0, 0, range(asked - 1)))].any(1).sum()
    assert asked / 1200 < found < asked / 300


def test_only_rows_not_found_of_the_last_partial_block_are_zeroed(device: torch.device) -> None:
    store, expected = store_of([DraftGroup(16)], device), store_of([DraftGroup(16)], device)
    store.record(0, sorted(set(range(48)) - {3, 20, 31, 33, 40}))
    for layer, cells in enumerate(expected.groups[0].rows.layers):
        for position in (33, 40):
            cells.elements[expected.row(0, layer, 0, position)] = 0

    zero_unwritten_rows(store.written, store.groups, store.admission([0, -1, 2], [44, 7, 32]), 16)

    torch.testing.assert_close(store.memory(), expected.memory(), rtol=0, atol=0)


def test_zeroing_reaches_over_all_blocks_of_the_groups_common_alignment(device: torch.device) -> None:
    groups = [DraftGroup(4, sliding_window=6), DraftGroup(48)]
    store, expected = store_of(groups, device), store_of(groups, device)
    for group, first in enumerate([90 - 5, 48]):
        for layer, cells in enumerate(expected.groups[group].rows.layers):
            for position in range(first, 90):
                cells.elements[expected.row(group, layer, 1, position)] = 0

    zero_unwritten_rows(store.written, store.groups, store.admission([1], [90]), hidden_alignment(groups))

    torch.testing.assert_close(store.memory(), expected.memory(), rtol=0, atol=0)


def test_a_layer_with_fewer_cells_is_judged_and_zeroed_with_the_others(device: torch.device) -> None:
    layers = [fresh_layer(64, 16, width, torch.int16, device) for width in (2, 50)]
    for layer in layers:
        layer.elements[layer.at(torch.arange(64, device=device))] = 9
    rows = row_cells(layers)
    token_ids, table = torch.zeros(1, 20, dtype=torch.int32, device=device), int32([2, 1], device).view(1, 2)
    admission = Admission(int32([0], device), int32([20], device), 20, token_ids, (table,))

    zero_unwritten_rows(WrittenRows(64, device), [GroupRows(DraftGroup(16), rows)], admission, 16)

    for layer in layers:
        zeroed = (layer.elements[layer.at(torch.arange(64, device=device))] == 0).all(1)
        assert zeroed.nonzero().flatten().tolist() == [16, 17, 18, 19]
        assert int((layer.elements == 0).sum()) == 4 * layer.cells.shape[1]


@pytest.mark.parametrize(("block_size", "cp_size", "interleave"), [(1, 2, 1), (16, 2, 1), (16, 4, 16), (6, 3, 2)])
@pytest.mark.parametrize("unwritten", [[], [5, 40], [62]])
def test_the_maximum_over_context_parallel_ranks_is_the_answer_of_one_rank(
    device: torch.device, block_size: int, cp_size: int, interleave: int, unwritten: list[int]
) -> None:
    written = sorted(set(range(63)) - set(unwritten))
    alone = store_of([DraftGroup(block_size)], device)
    alone.record(1, written, kernel=False)
    answers = []

    for rank in range(cp_size):
        store = store_of([DraftGroup(block_size, cp_size, interleave)], device, cp_ranks=[rank])
        store.record(1, written, kernel=False)
        answers.append(store.past_unwritten(1, 63))

    assert max(answers) == alone.past_unwritten(1, 63) == max(unwritten, default=-1) + 1


@pytest.mark.parametrize("groups", [[DraftGroup(16)], [DraftGroup(16), DraftGroup(8, sliding_window=30)]])
def test_rows_that_the_step_is_about_to_store_count_as_found(device: torch.device, groups: list[DraftGroup]) -> None:
    store = store_of(groups, device)
    store.record(1, range(20))

    assert store.past_unwritten(1, 50, store.coming(1, range(20, 50))) == 0
    assert store.past_unwritten(1, 50, store.coming(1, range(20, 49))) == 50
    assert store.past_unwritten(1, 50, store.coming(1, [*range(20, 41), *range(42, 50)])) == 42


@pytest.mark.parametrize("slots_a_program", [1, 16, 32])
def test_rows_that_come_are_marked_by_as_many_programs_as_they_need(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, slots_a_program: int
) -> None:
    monkeypatch.setattr(written_rows, "COMING_A_PROGRAM", slots_a_program)
    store = store_of([DraftGroup(16)], device)

    assert store.past_unwritten(1, 50, store.coming(1, range(50))) == 0


def test_rows_that_another_request_stores_elsewhere_are_not_those_that_come(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)

    assert store.past_unwritten(1, 50, store.coming(0, range(50))) == 50


def test_what_lies_in_the_slot_of_a_coming_row_is_not_remembered(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    store.record(1, range(20))
    store.written.start_generation()

    assert store.past_unwritten(1, 20, store.coming(1, range(20))) == 0

    assert not store.written.words[int(store.written.current)].any()


def test_coming_rows_are_not_zeroed(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    before = store.memory()
    admission = store.admission([0], [44])

    zero_unwritten_rows(
        store.written, store.groups, replace(admission, coming=store.coming(0, range(32, 44))), alignment=16
    )

    torch.testing.assert_close(store.memory(), before, rtol=0, atol=0)


GEOMETRIES = [
    DraftGroup(1),
    DraftGroup(3),
    DraftGroup(16),
    DraftGroup(128),
    DraftGroup(1, 4, 1),
    DraftGroup(4, 2, 2),
    DraftGroup(6, 3, 3),
    DraftGroup(16, 4, 4),
    DraftGroup(64, 2, 64),
    DraftGroup(128, 3, 1),
]


@dataclass(frozen=True)
class Case:
    """What both implementations are given. unreadable: block ids that tables are spoiled with. moved: rows are known by
    the filter alone."""

    groups: list[DraftGroup]
    ranks: list[int]
    element: torch.dtype
    kernel_blocks: int
    recorded: list[tuple[int, list[int]]]
    unreadable: list[tuple[int, int]]
    columns: int
    rows: list[int]
    restored: list[int]
    past: list[int]
    coming: tuple[int, list[int]] | None
    moved: bool

    def admission(self, store: Store) -> Admission:
        admission = store.admission(self.rows, self.restored)
        return replace(admission, coming=store.coming(*self.coming)) if self.coming else admission

    def store(self, device: torch.device) -> Store:
        return store_of(
            self.groups,
            device,
            requests=2,
            max_tokens=70,
            element=self.element,
            cp_ranks=self.ranks,
            kernel_blocks=self.kernel_blocks,
        )

    def spoil(self, store: Store) -> None:
        for column, block in self.unreadable:
            for table in store.tables:
                table[:, column % table.shape[1]] = block
        store.tables = [table[:, : self.columns] for table in store.tables]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shapes = draw(st.lists(st.sampled_from(GEOMETRIES), min_size=1, max_size=3))
    windows = st.sampled_from([0, 0, 1, 40, 1000])
    recorded = st.one_of(st.just(list(range(70))), st.lists(st.integers(0, 69), min_size=1, max_size=60))
    return Case(
        groups=[replace(shape, sliding_window=draw(windows)) for shape in shapes],
        ranks=[draw(st.integers(0, shape.cp_size - 1)) for shape in shapes],
        element=draw(st.sampled_from([torch.int8, torch.int16, torch.int32])),
        kernel_blocks=draw(st.sampled_from([1, 2])),
        recorded=draw(st.lists(st.tuples(st.integers(0, 1), recorded), max_size=3)),
        unreadable=draw(st.lists(st.tuples(st.integers(0, 8), st.sampled_from([-1, -(2**31), 10_000])), max_size=2)),
        columns=draw(st.sampled_from([1, 2, 70])),
        rows=draw(st.permutations([0, 1, -1])),
        restored=draw(st.lists(st.integers(0, 70), min_size=3, max_size=3)),
        past=draw(st.lists(st.sampled_from([0, 0, 33, 500]), min_size=3, max_size=3)),
        coming=draw(st.one_of(st.none(), st.tuples(st.integers(0, 1), recorded))),
        moved=draw(st.booleans()),
    )


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_kernels_do_what_the_reference_does_bit_for_bit(device: torch.device, case: Case) -> None:
    ours, theirs = case.store(device), case.store(device)
    admission, expected = (case.admission(store) for store in (ours, theirs))
    for request, positions in case.recorded:
        for store in (ours, theirs):
            store.record(request, positions, kernel=store is ours)
            if request:
                store.written.start_generation()
        assert torch.equal(ours.written.words, theirs.written.words)
        for group, other in zip(ours.groups, theirs.groups, strict=True):
            assert torch.equal(group.rows.recorded, other.rows.recorded)
    for store in (ours, theirs):
        case.spoil(store)
        if case.moved:
            store.forget_slots()
    past, expected_past = int32(case.past, device), int32(case.past, device)
    alignment = hidden_alignment(case.groups)

    admission = replace(admission, tables=tuple(ours.tables))
    find_unwritten_rows(ours.written, ours.groups, admission, past)
    zero_unwritten_rows(ours.written, ours.groups, admission, alignment)

    expected = replace(expected, tables=tuple(theirs.tables))
    find_unwritten_rows_reference(theirs.written, theirs.groups, expected, expected_past)
    zero_unwritten_rows_reference(theirs.written, theirs.groups, expected, alignment)
    assert past.tolist() == expected_past.tolist()
    assert torch.equal(ours.written.words, theirs.written.words)
    torch.testing.assert_close(ours.memory(), theirs.memory(), rtol=0, atol=0)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
def test_any_number_of_rows_is_recorded_in_either_index_type(
    device: torch.device, index_dtype: torch.dtype, count: int
) -> None:
    ours, theirs = store_of([DraftGroup(16)], device), store_of([DraftGroup(16)], device)
    positions = torch.arange(100, dtype=index_dtype, device=device)
    slots, tokens = ours.slots(0, 0, range(count)).to(index_dtype), ours.token_ids[0].to(index_dtype)
    slots[::7] = -1

    record_written_rows(ours.written, ours.groups[0].rows, slots, tokens, positions)

    record_written_rows_reference(theirs.written, theirs.groups[0].rows, slots, tokens, positions)
    assert torch.equal(ours.written.words, theirs.written.words)


def test_where_nothing_is_written_or_restored_nothing_is_launched(device: torch.device) -> None:
    store, none = store_of([DraftGroup(16)], device), int32([], device)
    before, past = store.memory(), int32([3, 3], device)

    record_written_rows(store.written, store.groups[0].rows, none, none, none)
    for admission in (store.admission([], []), store.admission([0, 1], [0, 0])):
        find_unwritten_rows(store.written, store.groups, admission, past)
        zero_unwritten_rows(store.written, store.groups, admission, 16)

    assert not store.written.words.any()
    assert past.tolist() == [3, 3]
    torch.testing.assert_close(store.memory(), before, rtol=0, atol=0)


def test_layers_that_cannot_share_a_launch_are_refused(device: torch.device) -> None:
    by_two, by_four = (fresh_layer(64, 16, WIDTH, element, device) for element in (torch.int16, torch.int32))
    small = fresh_layer(64, 8, WIDTH, torch.int16, device)

    with pytest.raises(ValueError, match="at least one layer"):
        row_cells([])
    with pytest.raises(ValueError, match=r"\[\(16, 2\), \(16, 4\)\]"):
        row_cells([by_two, by_four])
    with pytest.raises(ValueError, match=r"\[\(8, 2\), \(16, 2\)\]"):
        row_cells([by_two, small])


def test_wrong_arguments_are_refused(device: torch.device) -> None:
    store = store_of([DraftGroup(16)], device)
    rows, two = store.groups[0].rows, int32([0, 0], device)

    def find(admission: Admission, past: torch.Tensor = two) -> None:
        find_unwritten_rows(store.written, store.groups, admission, past)

    good = store.admission([0, 1], [20, 20])
    with pytest.raises(ValueError, match="slots must be a vector"):
        record_written_rows(store.written, rows, two.float(), two, two)
    with pytest.raises(ValueError, match="tokens must have at least 2"):
        record_written_rows(store.written, rows, two, two[:1], two)
    with pytest.raises(ValueError, match="positions is on meta"):
        record_written_rows(store.written, rows, two, two, two.to("meta"))
    with pytest.raises(ValueError, match="past_unwritten must have at least 2"):
        find(good, two[:1])
    with pytest.raises(ValueError, match="restored_tokens must be a vector"):
        find(replace(good, restored_tokens=good.restored_tokens.long()))
    with pytest.raises(ValueError, match="token_ids must be an int32 matrix"):
        find(replace(good, token_ids=good.token_ids.long()))
    with pytest.raises(ValueError, match="101 tokens restored, but token_ids has 100"):
        find(replace(good, most_restored=101))
    with pytest.raises(ValueError, match="a block table must be an int32 matrix"):
        find(replace(good, tables=(store.tables[0].long(),)))
    with pytest.raises(ValueError, match="shorter"):
        find(replace(good, tables=()))
    with pytest.raises(ValueError, match="coming must be a vector"):
        find(replace(good, coming=(two.float(),)))
    with pytest.raises(ValueError, match="longer"):
        find(replace(good, coming=(two, two)))
