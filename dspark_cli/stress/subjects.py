"""The kernels under stress, each made ready to run again and again on one case."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from dspark_kernels.block_table_gather import GatherShape, gather_block_tables
from dspark_kernels.block_table_shift import ShiftShape, shift_block_tables
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
from dspark_kernels.unguarded_shift import shift_block_tables_unguarded

from dspark_cli.stress.case import Mapping, Shift, StressCase

POISON = -7_777_777
BLOCK_TOKENS = 16
QUERY_TOKENS = 8
SHARED_BY = [(2, 1), (2, 4), (4, 1), (4, 16), (3, 2), (2, 16)]
"""Context-parallel ranks, and the tokens that each is dealt in its turn."""
TOKENS_READ = 64
MOST_ADMITTED, MOST_ADMITTED_BLOCKS = 4, 32
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
    original, storage = drawn.table.contiguous().to(device), _poisoned(case, device)
    work = storage[:, : case.blocks]
    shifts, needed = drawn.shift_blocks.to(device), drawn.needed_blocks.to(device)
    slots = None if drawn.request_slots is None else drawn.request_slots.to(device)

    def reset() -> None:
        work.copy_(original)

    def launch() -> None:
        shift(work, shifts, needed, slots, shape=_shift_shape(case))

    return Ready(reset, launch, (storage,), (_with_gap(expected, case, device),))


def prepare_gather(case: StressCase, seed: int, device: str) -> Ready:
    drawn = draw(case, seed)
    slots = _slots_or_rows(drawn)
    poison = torch.full_like(drawn.table, POISON)
    expected = gather_block_tables_reference(drawn.table, poison, slots, drawn.shift_blocks, drawn.needed_blocks)
    table, storage = drawn.table.to(device), _poisoned(case, device)
    output = storage[:, : case.blocks]
    on_device = [tensor.to(device) for tensor in (slots, drawn.shift_blocks, drawn.needed_blocks)]

    def reset() -> None:
        output.fill_(POISON)

    def launch() -> None:
        gather_block_tables(table, output, *on_device, shape=GatherShape(case.chunk, case.warps))

    return Ready(reset, launch, (storage,), (_with_gap(expected, case, device),))


def prepare_masking(case: StressCase, seed: int, device: str) -> Ready:
    """One draft group, or, where the case has a gap between rows, two of different block size on one length."""
    drawn = draw(case, seed)
    slots = _slots_or_rows(drawn)
    groups = [DraftGroup(BLOCK_TOKENS)] if case.gap == 0 else [DraftGroup(BLOCK_TOKENS), DraftGroup(2 * BLOCK_TOKENS)]
    originals = [drawn.table, *(drawn.table[:, : case.blocks // 2 + 1].flip(1).contiguous() for _ in groups[1:])]
    hidden_tokens = drawn.shift_blocks * BLOCK_TOKENS
    hidden_of_row = torch.where(slots < 0, 0, hidden_tokens[slots.clamp(min=0).long()])
    seq_lens = (hidden_of_row + drawn.needed_blocks * BLOCK_TOKENS - slots.remainder(BLOCK_TOKENS)).clamp(min=1)
    seq_lens = seq_lens.to(torch.int32)
    masked_tables, masked_lens = mask_draft_context_reference(
        groups, originals, seq_lens, slots, hidden_tokens, QUERY_TOKENS
    )
    sources = [*(table.contiguous().to(device) for table in originals), seq_lens.to(device)]
    storage = _poisoned(case, device)
    works = [storage[:, : case.blocks], *(torch.empty_like(source) for source in sources[1:])]
    tables = DraftBlockTables(groups, works[:-1])
    slots, hidden_tokens = slots.to(device), hidden_tokens.to(device)

    def reset() -> None:
        for work, source in zip(works, sources, strict=True):
            work.copy_(source)

    def launch() -> None:
        mask_draft_context(tables, works[-1], slots, hidden_tokens, QUERY_TOKENS, shape=_shift_shape(case))

    others = tuple(tensor.to(device) for tensor in (*masked_tables[1:], masked_lens))
    return Ready(reset, launch, (storage, *works[1:]), (_with_gap(masked_tables[0], case, device), *others))


def prepare_context_parallel(case: StressCase, seed: int, device: str) -> Ready:
    """Every rank's rows of a draft group that context-parallel ranks share, masked, and then read.

    Each token that is left must be found where it was stored: on the same rank, in the same slot. Rows are virtual
    blocks; how many ranks share them, and the interleave by which they deal out tokens, are drawn.
    """
    drawn = draw(case, seed)
    generator = torch.Generator().manual_seed(case.seeded(seed))
    group = DraftGroup(BLOCK_TOKENS, *SHARED_BY[case.seeded(seed) % len(SHARED_BY)])
    slots, tokens = _slots_or_rows(drawn), group.virtual_block_size
    hidden_tokens = drawn.shift_blocks * tokens
    hidden_of_row = torch.where(slots < 0, 0, hidden_tokens[slots.clamp(min=0).long()])
    seq_lens = (hidden_of_row + drawn.needed_blocks * tokens - slots.remainder(tokens)).clamp(min=1).to(torch.int32)
    originals = [drawn.table.roll(rank, dims=1).contiguous() for rank in range(group.cp_size)]
    masked = [
        mask_draft_context_reference([group], [table], seq_lens, slots, hidden_tokens, QUERY_TOKENS)
        for table in originals
    ]
    masked_lens = masked[0][1]
    left = (torch.rand(case.rows, TOKENS_READ, generator=generator) * masked_lens[:, None]).long()
    stored = _where_stored(group, originals, left + (seq_lens - masked_lens)[:, None])
    sources = [table.to(device) for table in originals]
    works, lens = [torch.empty_like(source) for source in sources], torch.empty_like(seq_lens, device=device)
    tables = [DraftBlockTables([group], [work]) for work in works]
    seq_lens, slots, hidden_tokens, left = (each.to(device) for each in (seq_lens, slots, hidden_tokens, left))
    found = torch.empty_like(stored, device=device)

    def reset() -> None:
        for work, source in zip(works, sources, strict=True):
            work.copy_(source)
        found.fill_(POISON)

    def launch() -> None:
        for of_rank in tables:
            lens.copy_(seq_lens)
            mask_draft_context(of_rank, lens, slots, hidden_tokens, QUERY_TOKENS, shape=_shift_shape(case))
        found.copy_(_where_stored(group, works, left))

    expected = (*(of_rank[0][0].to(device) for of_rank in masked), masked_lens.to(device), stored.to(device))
    return Ready(reset, launch, (*works, lens, found), expected)


def _where_stored(group: DraftGroup, tables: list[torch.Tensor], positions: torch.Tensor) -> torch.Tensor:
    """int64 [rows, positions, 2]: the rank that holds each position, and its slot there.

    tables: int32 [rows, blocks] of each rank. positions: int64 [rows, positions].
    """
    within = positions % group.virtual_block_size
    turn, of_turn = within // group.cp_interleave, within % group.cp_interleave
    rank = turn % group.cp_size
    offset = turn // group.cp_size * group.cp_interleave + of_turn
    row = torch.arange(len(positions), device=positions.device)[:, None]
    block = torch.stack(tables)[rank, row, positions // group.virtual_block_size].long()
    return torch.stack([rank, block * group.block_size + offset], dim=-1)


def prepare_admission(case: StressCase, seed: int, device: str) -> Ready:
    """Tags of restored slots, some of them overwritten by draft queries, and the check that finds what to hide.

    The reference walks tokens one by one, so the case is cut to 4 requests of 32 blocks. The shift says how many
    restored blocks have a stale slot.
    """
    generator = torch.Generator().manual_seed(case.seeded(seed))
    rows, blocks = min(case.rows, MOST_ADMITTED), min(case.blocks, MOST_ADMITTED_BLOCKS)
    tokens = blocks * BLOCK_TOKENS
    groups = [DraftGroup(BLOCK_TOKENS)]
    table = (torch.randperm(rows * blocks, generator=generator) + 1).to(torch.int32).view(rows, blocks)
    token_ids = torch.randint(0, 1 << 17, (rows, tokens), generator=generator, dtype=torch.int32)
    positions = torch.arange(tokens, dtype=torch.int32).repeat(rows)
    mapping = (table.long().unsqueeze(-1) * BLOCK_TOKENS + torch.arange(BLOCK_TOKENS)).flatten()
    restored = torch.randint(0, tokens + 1, (rows,), generator=generator, dtype=torch.int32)
    stale = mapping[torch.randint(0, len(mapping), (rows * (case.seeded(seed) % 3),), generator=generator)]
    slots = _draw_slots(StressCase(rows, blocks, case.shift, mapping=case.mapping), generator)
    slots = torch.arange(rows, dtype=torch.int32) if slots is None else slots
    untagged = torch.zeros((rows * blocks + 1) * BLOCK_TOKENS, dtype=torch.int32)
    tagged = store_context_tags_reference(untagged, mapping, token_ids.flatten(), positions)
    tagged[stale] = 0
    nothing = torch.full((rows,), POISON, dtype=torch.int32)
    expected = check_admission_reference(groups, [tagged], [table], slots, restored, token_ids, nothing)
    tags, hidden = torch.empty_like(untagged, device=device), torch.empty_like(nothing, device=device)
    table, mapping, token_ids, positions, stale, slots, restored = (
        tensor.to(device) for tensor in (table, mapping, token_ids, positions, stale, slots, restored)
    )
    tag_group, tables = GroupTensors("tags", [tags]), DraftBlockTables(groups, [table])

    def reset() -> None:
        tags.zero_()
        hidden.fill_(POISON)

    def launch() -> None:
        store_context_tags(tags, mapping, token_ids.view(-1), positions)
        clear_query_tags(tags, stale)
        check_admission(tag_group, tables, slots, restored, token_ids, hidden)

    return Ready(reset, launch, (tags, hidden), (tagged.to(device), expected.to(device)))


KERNELS: dict[str, Prepare] = {
    "shift": prepare_shift,
    "gather": prepare_gather,
    "masking": prepare_masking,
    "context-parallel": prepare_context_parallel,
    "slot-tags": prepare_admission,
}


def _poisoned(case: StressCase, device: str) -> torch.Tensor:
    """int32 [rows, blocks + gap], poison in every entry; its first `blocks` columns are the case's table."""
    return torch.full((case.rows, case.blocks + case.gap), POISON, dtype=torch.int32, device=device)


def _with_gap(table: torch.Tensor, case: StressCase, device: str) -> torch.Tensor:
    """`table` as it must come out, with untouched poison in the gaps."""
    storage = _poisoned(case, device)
    storage[:, : case.blocks] = table.to(device)
    return storage


def _shift_shape(case: StressCase) -> ShiftShape:
    return ShiftShape(case.chunk, case.warps, case.prefetch, early=case.early)


def _slots_or_rows(drawn: BlockTable) -> torch.Tensor:
    return torch.arange(len(drawn.table), dtype=torch.int32) if drawn.request_slots is None else drawn.request_slots


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
