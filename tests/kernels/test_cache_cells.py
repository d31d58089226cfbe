"""A slot's cells are found by writing, in every layout that an attention backend may choose."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from dspark_kernels.cache_cells import CellsNotFound, LayerCells, find_cells

BLOCKS, HEADS, WIDTH = 5, 2, 6


@dataclass
class Layout:
    """A cache, the memory that it lies in, and the part of it that a slot owns. `shared`: what every write changes."""

    memory: torch.Tensor
    cache: torch.Tensor
    block_size: int
    row: Callable[[int, int], torch.Tensor]
    """The view that holds K and V of a slot, by block and offset in the block."""
    shared: torch.Tensor | None = None

    @property
    def num_slots(self) -> int:
        return BLOCKS * self.block_size

    def slot(self, slot: int) -> torch.Tensor:
        return self.row(slot // self.block_size, slot % self.block_size)


def filled(*shape: int, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Memory of ones: whatever touches it shows."""
    return torch.ones(shape, device=device).to(dtype)


def block_first(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    cache = filled(BLOCKS, 2, block_size, HEADS, WIDTH, device=device, dtype=dtype)
    return Layout(cache, cache, block_size, lambda block, offset: cache[block, :, offset])


def heads_first(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    memory = filled(BLOCKS, 2, HEADS, block_size, WIDTH, device=device, dtype=dtype)
    return Layout(memory, memory.transpose(2, 3), block_size, lambda block, offset: memory[block, :, :, offset])


def key_value_first(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    cache = filled(2, BLOCKS, block_size, HEADS, WIDTH, device=device, dtype=dtype)
    return Layout(cache, cache, block_size, lambda block, offset: cache[:, block, offset])


def blocks_second(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    cache = filled(1, BLOCKS, block_size, 2 * WIDTH, device=device, dtype=dtype)
    return Layout(cache, cache, block_size, lambda block, offset: cache[0, block, offset])


def key_beside_value(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    cache = filled(BLOCKS, block_size, HEADS, 2 * WIDTH, device=device, dtype=dtype)
    return Layout(cache, cache, block_size, lambda block, offset: cache[block, offset])


def interleaved_pairs(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    pairs = -(-block_size // 2)
    cache = filled(BLOCKS, HEADS, pairs, WIDTH, 2, device=device, dtype=dtype)
    return Layout(cache, cache, block_size, lambda block, offset: cache[block, :, offset // 2, :, offset % 2])


def padded_pages(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    page = block_size * WIDTH
    memory = filled(BLOCKS, page + 7, device=device, dtype=dtype)
    cache = memory.as_strided((BLOCKS, block_size, WIDTH), (page + 7, WIDTH, 1))
    return Layout(memory, cache, block_size, lambda block, offset: cache[block, offset])


def one_layer_of_many(device: torch.device, block_size: int, dtype: torch.dtype) -> Layout:
    memory = filled(3 + BLOCKS, 4, block_size, 2 * WIDTH, device=device, dtype=dtype)
    cache = memory[3:, 2, :, 1 : WIDTH + 1]
    return Layout(memory, cache, block_size, lambda block, offset: cache[block, offset])


LAYOUTS = [
    block_first,
    heads_first,
    key_value_first,
    blocks_second,
    key_beside_value,
    interleaved_pairs,
    padded_pages,
    one_layer_of_many,
]


def scale_in_the_page(device: torch.device, block_size: int) -> Layout:
    memory = filled(BLOCKS, block_size * WIDTH + 4, device=device, dtype=torch.int8)
    rows = memory[:, :-4].view(BLOCKS, block_size, WIDTH)
    return Layout(memory, memory, block_size, lambda block, offset: rows[block, offset], shared=memory[:, -4:])


def random_like(view: torch.Tensor, draw: torch.Generator, zeros: float) -> torch.Tensor:
    values = torch.randn(view.shape, generator=draw) * 40
    values[torch.rand(view.shape, generator=draw) < zeros] = 0
    return values.to(view.device, view.dtype)


def writer(layout: Layout, *, seed: int, zeros: float = 0.0) -> Callable[[torch.Tensor], None]:
    """`zeros`: the part of the values that is stored as zero."""
    draw = torch.Generator().manual_seed(seed)

    def write(slots: torch.Tensor) -> None:
        for slot in slots[slots >= 0].tolist():
            row = layout.slot(slot)
            row.copy_(random_like(row, draw, zeros))
            if layout.shared is not None:
                layout.shared[slot // layout.block_size] = int(torch.randint(1, 100, (), generator=draw))

    return write


def marks(layout: Layout, mark: Callable[[], object]) -> torch.Tensor:
    """Where `mark` changes zeroed memory."""
    layout.memory.zero_()
    mark()
    return layout.memory != 0


def assert_cells_are_the_rows(found: LayerCells, layout: Layout) -> None:
    def mark_cells(slot: int) -> None:
        where = found.at(torch.tensor([slot], device=found.elements.device))
        found.elements[where] = 0x38  # no zero in any dtype

    for slot in range(layout.num_slots):
        by_cells = marks(layout, partial(mark_cells, slot))
        by_layout = marks(layout, partial(layout.slot(slot).fill_, 1))
        assert torch.equal(by_cells, by_layout), slot


@pytest.mark.parametrize("make", LAYOUTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_the_cells_are_what_a_slot_owns_in_any_layout(
    device: torch.device, make: Callable[..., Layout], block_size: int
) -> None:
    layout = make(device, block_size, torch.bfloat16)

    found = find_cells(layout.cache, layout.num_slots, writer(layout, seed=block_size))

    assert (found.block_size, found.num_slots) == (block_size, layout.num_slots)
    assert found.cells.shape == (block_size, layout.slot(0).numel())
    assert_cells_are_the_rows(found, layout)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float16, torch.float32], ids=str)
def test_the_cells_are_found_in_elements_of_one_two_and_four_bytes(device: torch.device, dtype: torch.dtype) -> None:
    layout = heads_first(device, 8, dtype)

    found = find_cells(layout.cache, layout.num_slots, writer(layout, seed=1))

    assert found.elements.element_size() == dtype.itemsize
    assert found.cells.shape == (8, layout.slot(0).numel())
    by_cells = found.elements[found.at(torch.tensor([13], device=device))]
    layout.slot(13).copy_(random_like(layout.slot(13), torch.Generator().manual_seed(2), 0))
    changed = found.elements[found.at(torch.tensor([13], device=device))] != by_cells
    assert changed.float().mean() > 0.9


@pytest.mark.parametrize("block_size", [2, 16, 128])
def test_values_that_are_stored_as_zero_by_chance_are_found_all_the_same(device: torch.device, block_size: int) -> None:
    layout = key_beside_value(device, block_size, torch.int8)

    found = find_cells(layout.cache, layout.num_slots, writer(layout, seed=3, zeros=0.05))

    assert_cells_are_the_rows(found, layout)


def test_a_scale_of_the_block_that_every_write_changes_is_nobodys(device: torch.device) -> None:
    layout = scale_in_the_page(device, 8)

    found = find_cells(layout.cache, layout.num_slots, writer(layout, seed=4, zeros=0.05))

    assert_cells_are_the_rows(found, layout)


@pytest.mark.parametrize("make", LAYOUTS, ids=lambda make: make.__name__)
def test_block_0_is_left_zeroed_and_the_rest_untouched(device: torch.device, make: Callable[..., Layout]) -> None:
    layout, expected = make(device, 4, torch.bfloat16), make(device, 4, torch.bfloat16)
    blocks_dim = layout.cache.shape.index(BLOCKS)
    expected.cache.select(blocks_dim, 0).zero_()

    find_cells(layout.cache, layout.num_slots, writer(layout, seed=5))

    assert torch.equal(layout.memory, expected.memory)


def test_offsets_beyond_32_bits_are_kept(device: torch.device) -> None:
    far = 2**31
    memory = torch.empty(far + 4096, dtype=torch.int8, device=device)
    cache = memory.as_strided((2, BLOCKS, 4, 8), (far, 32, 8, 1))
    layout = Layout(memory, cache, 4, lambda block, offset: cache[:, block, offset])

    found = find_cells(cache, layout.num_slots, writer(layout, seed=7))

    last = 3 * 8 + torch.arange(8)
    assert found.cells[3].tolist() == [*last.tolist(), *(far + last).tolist()]


def refused(layout: Layout, write: Callable[[torch.Tensor], None], *, num_slots: int | None = None) -> str:
    with pytest.raises(CellsNotFound) as error:
        find_cells(layout.cache, num_slots or layout.num_slots, write)
    return str(error.value)


def test_a_cache_that_nothing_writes_is_refused(device: torch.device) -> None:
    layout = block_first(device, 4, torch.bfloat16)

    assert "no element of the cache changes" in refused(layout, lambda slots: None)


def test_a_write_that_changes_the_whole_block_is_refused(device: torch.device) -> None:
    layout = block_first(device, 4, torch.bfloat16)

    def write(slots: torch.Tensor) -> None:
        layout.cache[0] = 1

    assert "no element of the cache changes" in refused(layout, write)


def test_slots_that_share_their_bytes_are_refused(device: torch.device) -> None:
    """Four bits an element, two slots a byte: a byte with one slot's zero must not pass for the other slot's."""
    layout = block_first(device, 4, torch.int8)
    draw = torch.Generator().manual_seed(8)

    def write(slots: torch.Tensor) -> None:
        for slot in slots[slots >= 0].tolist():
            halves = torch.randint(0, 16, layout.slot(0).shape, generator=draw)
            layout.slot(slot // 2).bitwise_or_((halves << 4 * (slot % 2)).to(device, torch.int8))

    assert "no element of the cache changes" in refused(layout, write)


@pytest.mark.parametrize("stored", [0, 2])
def test_a_slot_that_owns_much_less_than_another_is_refused(device: torch.device, stored: int) -> None:
    layout = key_beside_value(device, 4, torch.bfloat16)
    write = writer(layout, seed=9)

    def write_little_of_slot_1(slots: torch.Tensor) -> None:
        write(slots)
        layout.slot(1).flatten(0)[stored:] = 0

    assert f"own from {stored} to {2 * HEADS * WIDTH} cells" in refused(layout, write_little_of_slot_1)


def test_a_few_cells_that_are_never_seen_are_made_up_for(device: torch.device) -> None:
    layout = key_beside_value(device, 4, torch.bfloat16)
    write = writer(layout, seed=10)

    def one_value_is_always_zero(slots: torch.Tensor) -> None:
        write(slots)
        layout.slot(1).view(-1)[5] = 0

    found = find_cells(layout.cache, layout.num_slots, one_value_is_always_zero)

    assert [len(set(cells)) for cells in found.cells.tolist()] == [24, 23, 24, 24]


def test_blocks_that_cannot_be_counted_are_refused(device: torch.device) -> None:
    layout = block_first(device, 4, torch.bfloat16)

    assert "into blocks" in refused(layout, lambda slots: None, num_slots=layout.num_slots + 1)


def test_elements_of_eight_bytes_are_refused(device: torch.device) -> None:
    layout = block_first(device, 4, torch.float64)

    assert "elements of 8 bytes" in refused(layout, writer(layout, seed=11))
