"""The kernels under stress, each made ready to run again and again on one case."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from dspark_kernels.block_table_shift import ShiftShape, shift_block_tables
from dspark_kernels.reference import shift_block_tables_reference
from dspark_kernels.unguarded_shift import shift_block_tables_unguarded

from dspark_cli.stress.case import Mapping, Shift, StressCase

POISON = -7_777_777
SHORTEST_NEEDED = 0.5
"""Rows need between this share and all of the blocks that are left after the shift."""


@dataclass(frozen=True)
class Ready:
    """A kernel and its buffers. `reset` restores the inputs and poisons what will be written, `launch` runs the kernel,
    and then every tensor of `outputs` must equal its twin in `expected`."""

    reset: Callable[[], None]
    launch: Callable[[], None]
    outputs: tuple[torch.Tensor, ...]
    expected: tuple[torch.Tensor, ...]


Prepare = Callable[[StressCase, int, str], Ready]
"""(case, seed, torch device) -> a kernel made ready."""


@dataclass(frozen=True)
class BlockTable:
    """What a case draws. table: int32 [rows, blocks], row stride blocks + gap. shift_blocks: int32 [request slots].
    needed_blocks: int32 [rows]. request_slots: [rows], or None where row and slot are one."""

    table: torch.Tensor
    shift_blocks: torch.Tensor
    needed_blocks: torch.Tensor
    request_slots: torch.Tensor | None


def draw(case: StressCase, seed: int) -> BlockTable:
    """The block table of `case` on the CPU; block ids are positive and differ from the poison."""
    generator = torch.Generator().manual_seed(case.seeded(seed))
    storage = torch.full((case.rows, case.blocks + case.gap), POISON, dtype=torch.int32)
    table = storage[:, : case.blocks]
    table.copy_(torch.randint(1, 1 << 30, table.shape, generator=generator, dtype=torch.int32))
    shifts = _draw_shifts(case, generator)
    slots = _draw_slots(case, generator)
    of_row = shifts if slots is None else torch.where(slots < 0, 0, shifts[slots.clamp(min=0).long()])
    left = (case.blocks - of_row).clamp(min=0)
    share = SHORTEST_NEEDED + (1 - SHORTEST_NEEDED) * torch.rand(case.rows, generator=generator)
    return BlockTable(table, shifts, (left * share).ceil().to(torch.int32), slots)


def prepare_shift(case: StressCase, seed: int, device: str) -> Ready:
    return _prepare_in_place(shift_block_tables, case, seed, device)


def prepare_unguarded_shift(case: StressCase, seed: int, device: str) -> Ready:
    return _prepare_in_place(shift_block_tables_unguarded, case, seed, device)


def _prepare_in_place(shift: Callable[..., None], case: StressCase, seed: int, device: str) -> Ready:
    drawn = draw(case, seed)
    expected = shift_block_tables_reference(drawn.table, drawn.shift_blocks, drawn.needed_blocks, drawn.request_slots)
    original = _on(device, drawn.table)
    work = torch.full((case.rows, case.blocks + case.gap), POISON, dtype=torch.int32, device=device)[:, : case.blocks]
    shifts, needed = drawn.shift_blocks.to(device), drawn.needed_blocks.to(device)
    slots = None if drawn.request_slots is None else drawn.request_slots.to(device)
    shape = ShiftShape(case.chunk, case.warps, case.prefetch)

    def reset() -> None:
        work.copy_(original)

    return Ready(
        reset=reset,
        launch=lambda: shift(work, shifts, needed, slots, shape=shape),
        outputs=(work,),
        expected=(expected.to(device),),
    )


def _on(device: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().to(device)


def _draw_shifts(case: StressCase, generator: torch.Generator) -> torch.Tensor:
    """int32 [rows]: how far each slot's row moves, never past its end."""
    rows, last = case.rows, max(case.blocks - 1, 0)
    random = torch.exp2(torch.rand(rows, generator=generator) * torch.log2(torch.tensor(float(max(last, 1)))))
    near_end = last - torch.randint(0, 3, (rows,), generator=generator)
    match case.shift:
        case Shift.NEAR_END:
            shifts = near_end
        case Shift.RANDOM:
            shifts = random
        case Shift.MIXED:
            kinds = torch.stack([torch.zeros(rows), torch.ones(rows), random, near_end.float()])
            shifts = kinds[torch.randint(0, len(kinds), (rows,), generator=generator), torch.arange(rows)]
        case fixed:
            shifts = torch.full((rows,), int(fixed))
    return shifts.to(torch.int32).clamp(0, last)


def _draw_slots(case: StressCase, generator: torch.Generator) -> torch.Tensor | None:
    """A permutation of the slots with one row in eight padding (-1)."""
    if case.mapping is Mapping.NONE:
        return None
    slots = torch.randperm(case.rows, generator=generator)
    padding = torch.rand(case.rows, generator=generator) < 0.125
    return torch.where(padding, -1, slots).to(torch.int32 if case.mapping is Mapping.INT32 else torch.int64)


KERNELS: dict[str, Prepare] = {"shift": prepare_shift}
