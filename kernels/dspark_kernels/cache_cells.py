"""Where the K and V of one slot lie in a draft layer's cache, whatever the attention backend's layout.

A cache layer is a run of equal blocks. Within each, a slot owns the same *cells*: elements at fixed offsets from the
block's first one. They are found by writing (see `find_cells`), not from shapes, so packed, transposed, split and
quantised layouts are all alike.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

ELEMENTS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
"""The cells are read as integers of the cache's element size: equal bytes, equal cells."""
MOST_ATTEMPTS = 8
"""A random value may be stored as zero, which looks unwritten (often where it takes one byte): what one attempt misses
another finds. They end with the first that shows nothing new."""


class CellsNotFound(Exception):
    """This cache does not keep a slot's K and V in cells of its own; the text says what was seen."""


@dataclass(frozen=True)
class LayerCells:
    """One layer's cache. `elements`: integer vector, the layer's memory from block 0's first element on.

    block_stride: elements from one block to the next. block_size: slots a block of this cache (the attention kernel's
    block, which may be a part of the manager's). num_slots: slots of all blocks. cells: [block_size, cells a slot],
    offsets from the block; int32, or int64 where the layer is too long for it.
    """

    elements: torch.Tensor
    block_stride: int
    block_size: int
    num_slots: int
    cells: torch.Tensor

    def at(self, slots: torch.Tensor) -> torch.Tensor:
        """Indices into `elements`, int64 [slots, cells a slot]."""
        blocks = slots.long() // self.block_size
        return blocks[:, None] * self.block_stride + self.cells[slots.long() % self.block_size].long()


def find_cells(cache: torch.Tensor, num_slots: int, write: Callable[[torch.Tensor], None]) -> LayerCells:
    """Find the cells of `cache` by writing rows into its block 0, which must be nobody's; it is left zeroed.

    cache: the tensor that the attention layer holds, with one dimension of blocks. num_slots: slots in the whole cache.
    write: stores random K and V at the slots of an int64 vector, where -1 stores nothing.

    Each slot is told from the others by the bits of its number: a cell is of slot s if it changes exactly in the rounds
    that write the slots with s's value of a bit. Two rounds a bit.

    Raises CellsNotFound where blocks, or slots within a block, cannot be told apart.
    """
    if cache.element_size() not in ELEMENTS:
        raise CellsNotFound(f"elements of {cache.element_size()} bytes ({cache.dtype})")
    dim, block_size = _block_dimension(cache, num_slots)
    page = _as_integers(cache.select(dim, 0))
    owner = _owners(page, block_size, write)
    where = (owner >= 0).nonzero()
    offsets = (where * torch.tensor(page.stride(), device=where.device)).sum(1)
    elements = _elements(cache)
    return LayerCells(
        elements=elements,
        block_stride=cache.stride(dim),
        block_size=block_size,
        num_slots=num_slots,
        cells=_by_slot(offsets, owner[owner >= 0], block_size).to(
            torch.int32 if elements.shape[0] <= torch.iinfo(torch.int32).max else torch.int64
        ),
    )


def padded(cells: torch.Tensor, width: int) -> torch.Tensor:
    """[..., width]: the last of `cells` over and over where there are fewer. To read or zero a cell twice is harmless.

    Raises IndexError for no cells."""
    return cells[..., torch.arange(width, device=cells.device).clamp(max=cells.shape[-1] - 1)]


def _block_dimension(cache: torch.Tensor, num_slots: int) -> tuple[int, int]:
    for dim in (0, 1):
        if cache.dim() > dim + 1 and cache.shape[dim] > 2 and num_slots % cache.shape[dim] == 0:
            return dim, num_slots // cache.shape[dim]
    raise CellsNotFound(f"no dimension of {tuple(cache.shape)} divides {num_slots} slots into blocks")


def _owners(page: torch.Tensor, block_size: int, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    """The owning slot of each element of `page`, -1 where it has none or changes with several."""
    every = torch.arange(block_size, device=page.device)
    bits = max(block_size - 1, 1).bit_length()
    changed = torch.zeros(2, bits, *page.shape, dtype=torch.bool, device=page.device)
    for _ in range(MOST_ATTEMPTS):
        known = changed.clone()
        for bit in range(bits):
            for value in (0, 1):
                page.zero_()
                write(torch.where((every >> bit) & 1 == value, every, -1))
                changed[value, bit] |= page != 0
        if torch.equal(changed, known):
            break
    page.zero_()
    slot = torch.stack([changed[1, bit].long() << bit for bit in range(bits)]).sum(0)
    alone = (changed[0] ^ changed[1]).all(0) & (slot < block_size)
    return torch.where(alone, slot, -1)


def _by_slot(offsets: torch.Tensor, owners: torch.Tensor, block_size: int) -> torch.Tensor:
    """The `offsets` of each slot, [block_size, most that a slot owns].

    Raises CellsNotFound where a slot owns none, or less than half as many as another.
    """
    per_slot = torch.bincount(owners, minlength=block_size)
    fewest, most = int(per_slot.min()), int(per_slot.max())
    if most == 0:
        raise CellsNotFound("no element of the cache changes with the rows of one slot alone")
    if fewest == 0 or fewest < most // 2:
        raise CellsNotFound(f"slots of a block own from {fewest} to {most} cells")
    return torch.stack([padded(offsets[owners == slot], most) for slot in range(block_size)])


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(ELEMENTS[tensor.element_size()])


def _elements(cache: torch.Tensor) -> torch.Tensor:
    span = 1 + sum((size - 1) * stride for size, stride in zip(cache.shape, cache.stride(), strict=True))
    return torch.as_strided(_as_integers(cache), (span,), (1,))
