"""Where the K and V of one slot lie in a draft layer's cache, whatever the attention backend's layout.

A cache layer is a run of equal blocks. Within each, a slot owns the same *cells*: elements at fixed offsets from the
block's first one. They are found by writing (see `find_cells`), not from shapes, so packed, transposed, split and
quantised layouts are all alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

ELEMENTS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
"""The cells are read as integers of the cache's element size: equal bytes, equal cells."""
ATTEMPTS = 2
"""Random rows may hold a zero that looks unwritten; what one attempt misses another finds."""


class CellsNotFound(Exception):
    """This cache does not keep a slot's K and V in cells of its own; the text says what was seen."""


@dataclass(frozen=True)
class LayerCells:
    """One layer's cache. `elements`: integer vector, the layer's memory from block 0's first element on.

    block_stride: elements from one block to the next. block_size: slots a block of this cache (the attention kernel's
    block, which may be a part of the manager's). cells: int32 [block_size, cells a slot], offsets from the block.
    """

    elements: torch.Tensor
    block_stride: int
    block_size: int
    cells: torch.Tensor

    def at(self, slots: torch.Tensor, cells: torch.Tensor | None = None) -> torch.Tensor:
        """Indices into `elements`, int64 [slots, cells a slot]; `cells` may be a part of the layer's own."""
        cells = self.cells if cells is None else cells
        blocks = slots.long() // self.block_size
        return blocks[:, None] * self.block_stride + cells[slots.long() % self.block_size].long()


def find_cells(cache: torch.Tensor, num_slots: int, write: Callable[[torch.Tensor], None]) -> LayerCells:
    """Find the cells of `cache` by writing rows into its block 0, which must be nobody's; it is left zeroed.

    cache: the tensor that the attention layer holds, with one dimension of blocks. num_slots: slots in the whole cache.
    write: stores random K and V at the slots of an int64 vector, where -1 stores nothing.

    Each slot is told from the others by the bits of its number: a cell is of slot s if it changes exactly in the rounds
    that write the slots with s's value of a bit. Two rounds a bit.

    Raises CellsNotFound where blocks, or slots within a block, cannot be told apart.
    """
    dim, block_size = _block_dimension(cache, num_slots)
    page = cache.select(dim, 0)
    every = torch.arange(block_size, device=cache.device)
    where, owners = _merged([_attempt(page, every, write) for _ in range(ATTEMPTS)])
    offsets = (where * torch.tensor(page.stride(), device=where.device)).sum(1)
    per_slot = torch.bincount(owners, minlength=block_size)
    fewest = int(per_slot.min())
    if fewest == 0 or fewest < int(per_slot.max()) // 2:
        raise CellsNotFound(f"slots of a block own from {fewest} to {int(per_slot.max())} cells")
    by_slot = [offsets[owners == slot][:fewest] for slot in range(block_size)]
    elements = _elements(cache)
    return LayerCells(elements, cache.stride(dim), block_size, torch.stack(by_slot).to(torch.int32).contiguous())


def _block_dimension(cache: torch.Tensor, num_slots: int) -> tuple[int, int]:
    for dim in (0, 1):
        if cache.dim() > dim + 1 and cache.shape[dim] > 2 and num_slots % cache.shape[dim] == 0:
            return dim, num_slots // cache.shape[dim]
    raise CellsNotFound(f"no dimension of {tuple(cache.shape)} divides {num_slots} slots into blocks")


def _attempt(page: torch.Tensor, every: torch.Tensor, write: Callable[[torch.Tensor], None]) -> torch.Tensor:
    """The owning slot of each element of `page`, -1 where it has none or is ambiguous."""

    def changed(wanted: torch.Tensor) -> torch.Tensor:
        page.zero_()
        write(torch.where(wanted, every, -1))
        return _as_integers(page) != 0

    written = changed(torch.ones_like(every, dtype=torch.bool))
    owner = torch.zeros(page.shape, dtype=torch.int64, device=page.device)
    sure = written.clone()
    for bit in range(max(int(every.shape[0]) - 1, 1).bit_length()):
        has_bit = (every >> bit) & 1 == 1
        in_ones, in_zeros = changed(has_bit), changed(~has_bit)
        sure &= in_ones ^ in_zeros
        owner += in_ones.long() << bit
    page.zero_()
    return torch.where(sure & (owner < every.shape[0]), owner, -1)


def _merged(attempts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices [elements, dimensions] and owners of the elements that an attempt found.

    Raises CellsNotFound where two attempts give one element to different slots, or none finds any.
    """
    owner = torch.full_like(attempts[0], -1)
    for found in attempts:
        if bool(((owner >= 0) & (found >= 0) & (owner != found)).any()):
            raise CellsNotFound("an element belongs to one slot, then to another")
        owner = torch.where(found >= 0, found, owner)
    where = (owner >= 0).nonzero()
    if where.shape[0] == 0:
        raise CellsNotFound("nothing of the cache changed when rows were stored")
    return where, owner[owner >= 0]


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(ELEMENTS[tensor.element_size()])


def _elements(cache: torch.Tensor) -> torch.Tensor:
    span = 1 + sum((size - 1) * stride for size, stride in zip(cache.shape, cache.stride(), strict=True))
    return torch.as_strided(_as_integers(cache), (span,), (1,))
