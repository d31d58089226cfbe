"""Which rows of context KV the drafter has written, remembered by content.

A *row* is what a draft step stores for one token: the K and V of that position in every draft layer. When it is stored,
its fingerprint - made of the token, the position and a sample of the stored cells - is kept twice: with the slot, and
in a Bloom filter. When a request is admitted with restored tokens, the rows that lie in its slots are fingerprinted
again and looked up. A row that is found was written by this drafter, with this content, for this token at this
position, whichever way it came back: a prefix hit, a connector, another slot. A row that nobody wrote, that was
damaged, or that a draft query wrote over is not found. Nothing has to be cleared. A request may be admitted in the very
step that stores the rows it has restored, for another request that came with it: such rows are *coming*, and count as
found before they are there.

With the slot a row is known as long as it lies where it was written, however long a running request keeps it there. The
filter knows rows that left and came back, to whatever slot.

The filter has two generations. Rows go into the current one, and a row that is found is put there too; when the current
one is full, the older is emptied and becomes the current. A generation takes the rows of one more cacheful than are to
be remembered: by default twice as many rows as the cache has slots. The kernels count what was not in it before: a row
that is stored again, and a row that no slot is kept for, take no room. Of the rows in the cache every one is read again
at most once in a generation, so a row is forgotten only after as many cachefuls of new rows as are to be remembered, at
most twice as many and two, without its being read.

A row that was never written is found with a chance of 1 in 600 or less (see `words_for`). That shifts what is hidden by
one row, for the rows are checked one by one and the last one that is not found decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from dspark_kernels.cache_cells import LayerCells, padded
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.launch_checks import INDEX_DTYPES, require_table, require_vector
from dspark_kernels.slot_tags import mix32

SAMPLES = 32
"""Cells of each layer in a fingerprint; a cell changes with every other value of that element."""
ROWS_A_PROGRAM = 32
NUM_WARPS = 4
COMING_A_PROGRAM = 1024
MOST_LOOK_UPS = (1 << 31) - 1
"""Their numbers begin anew then; a slot that was coming that long ago and not since would be taken for one that is."""
ROWS_A_WORD = 2
BITS_A_ROW = 4
MOST_ROWS = 1 << 30
"""Of a generation: they are counted in 32 bits."""


@dataclass(frozen=True)
class RowCells:
    """The rows of one draft group: its layers' caches by address, so that one launch reads all of them; and what was
    recorded of them.

    samples: [layers, block_size, SAMPLES], offsets of the cells in a fingerprint. cells: [layers, block_size, cells a
    slot], all of them. addresses, strides: int64 [layers], strides in elements a block. recorded: int32 [num_slots], 32
    bits of the fingerprint of the row that was recorded last at each slot. coming: int32 [num_slots], the number of the
    look-up at which a slot's row was last coming. All keep their memory for life.
    """

    layers: tuple[LayerCells, ...]
    block_size: int
    element_bytes: int
    samples: torch.Tensor
    cells: torch.Tensor
    addresses: torch.Tensor
    strides: torch.Tensor
    recorded: torch.Tensor
    coming: torch.Tensor

    @property
    def num_slots(self) -> int:
        """Slots of the smallest layer; one at or behind it is nobody's."""
        return self.recorded.shape[0]


def row_cells(layers: Sequence[LayerCells]) -> RowCells:
    """Raise ValueError for no layer, or for layers with different blocks or element sizes."""
    if not layers:
        raise ValueError("a draft group has at least one layer")
    sizes = {(layer.block_size, layer.elements.element_size()) for layer in layers}
    if len(sizes) > 1:
        raise ValueError(f"layers of one draft group differ in (block size, element bytes): {sorted(sizes)}")
    block_size, element_bytes = sizes.pop()
    device = layers[0].elements.device
    most = max(layer.cells.shape[1] for layer in layers)
    num_slots = min(layer.num_slots for layer in layers)
    return RowCells(
        layers=tuple(layers),
        block_size=block_size,
        element_bytes=element_bytes,
        samples=torch.stack([_spread(layer.cells) for layer in layers]).contiguous(),
        cells=torch.stack([padded(layer.cells, most) for layer in layers]).contiguous(),
        addresses=torch.tensor([layer.elements.data_ptr() for layer in layers], dtype=torch.int64, device=device),
        strides=torch.tensor([layer.block_stride for layer in layers], dtype=torch.int64, device=device),
        recorded=torch.zeros(num_slots, dtype=torch.int32, device=device),
        coming=torch.zeros(num_slots, dtype=torch.int32, device=device),
    )


def _spread(cells: torch.Tensor) -> torch.Tensor:
    """SAMPLES of each slot's cells, from the first to the last; the same one more than once where there are fewer."""
    chosen = torch.linspace(0, cells.shape[1] - 1, SAMPLES, device=cells.device).round().long()
    return cells[:, chosen]


def words_for(capacity: int) -> int:
    """64-bit words of a generation of `capacity` rows. Two rows a word set 8 of 64 bits: (8 / 64)^4 is 1 in 4,096;
    twice, for both generations, and more because rows do not spread evenly: 1 in 600."""
    return max(int(triton.next_power_of_2(triton.cdiv(capacity, ROWS_A_WORD))), 1024)


class WrittenRows:
    """The filter: `words` int64 [2, power of two], `current` int32 [1], which generation takes new rows, and `taken`
    int32 [1], how many it has; the kernels count them there.

    All keep their memory for life, so captured graphs may use them. remembered: after how many times `num_slots` other
    rows one may be forgotten, at the earliest.
    """

    def __init__(self, num_slots: int, device: torch.device, remembered: int = 1) -> None:
        self.capacity = min((remembered + 1) * num_slots, MOST_ROWS)
        self.words = torch.zeros(2, words_for(self.capacity), dtype=torch.int64, device=device)
        self.current = torch.zeros(1, dtype=torch.int32, device=device)
        self.taken = torch.zeros(1, dtype=torch.int32, device=device)
        self._generation = 0
        self._most_taken = 0
        self._count: LaggingCount | None = None
        self._look_ups = 0

    def expect(self, rows: int) -> None:
        """Say that up to `rows` rows follow, or came since the last call; call it outside any graph. Starts a new
        generation when it is time.

        Never waits for the device. The device is asked for its count only when the current generation may be full, so
        it may take what a few steps store beyond its capacity.
        """
        self._most_taken += rows
        if self._most_taken <= self.capacity:
            return
        if self._count is None:
            self._count = LaggingCount(self.taken, self._most_taken)
        taken = self._count.arrived()
        if taken is None:
            return
        self._most_taken += taken - self._count.most_when_asked
        self._count = None
        if taken > self.capacity:
            self.start_generation()

    def number_look_up(self) -> int:
        """A number, not 0, that no look-up has had for long."""
        self._look_ups = self._look_ups % MOST_LOOK_UPS + 1
        return self._look_ups

    def start_generation(self) -> None:
        """Empty the older generation, and make it the current one."""
        self._generation ^= 1
        self.words[self._generation].zero_()
        self.current.fill_(self._generation)
        self._start_counting()

    def forget(self) -> None:
        """As if no row had been written."""
        self.words.zero_()
        self._start_counting()

    def _start_counting(self) -> None:
        self.taken.zero_()
        self._most_taken = 0
        self._count = None


class LaggingCount:
    """A count on the device, on its way to the host without anybody's waiting for it."""

    def __init__(self, counter: torch.Tensor, most_when_asked: int) -> None:
        self.most_when_asked = most_when_asked
        self._event: torch.Event | None = None
        self._answer = counter
        if counter.device.type == "cuda":
            self._answer = torch.empty(1, dtype=counter.dtype, pin_memory=True).copy_(counter, non_blocking=True)
            self._event = torch.Event(device=counter.device)
            self._event.record()

    def arrived(self) -> int | None:
        return None if self._event is not None and not self._event.query() else int(self._answer)


@triton.jit  # type: ignore[untyped-decorator]
def fingerprint(
    slot: tl.tensor,
    live: tl.tensor,
    token: tl.tensor,
    position: tl.tensor,
    addresses: tl.tensor,
    strides: tl.tensor,
    samples: tl.tensor,
    num_layers: tl.tensor,
    block_size: tl.tensor,
    element_bytes: tl.constexpr,
    sample_count: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Two words of 32 bits a row; see `fingerprint_reference` for the formula."""
    lane = tl.arange(0, sample_count)
    block = slot // block_size
    offset = slot % block_size
    first = tl.zeros_like(slot).to(tl.uint32)
    second = tl.zeros_like(slot).to(tl.uint32)
    for layer in tl.range(0, num_layers, num_stages=1):
        cell_row = (layer * block_size + offset)[:, None] * sample_count + lane[None, :]
        cell = tl.load(samples + cell_row, mask=live[:, None], other=0).to(tl.int64)
        cell += (block * tl.load(strides + layer))[:, None]
        address = tl.load(addresses + layer)
        if element_bytes == 1:
            stored = tl.load(address.to(tl.pointer_type(tl.uint8)) + cell, mask=live[:, None], other=0)
        elif element_bytes == 2:
            stored = tl.load(address.to(tl.pointer_type(tl.uint16)) + cell, mask=live[:, None], other=0)
        else:
            stored = tl.load(address.to(tl.pointer_type(tl.uint32)) + cell, mask=live[:, None], other=0)
        place = (layer * sample_count + lane).to(tl.uint32) * 0x9E3779B1 + 0x7F4A7C15
        mixed = mix32(stored.to(tl.uint32) ^ place[None, :])
        first += tl.sum(mixed, 1).to(tl.uint32)
        second += tl.sum(mix32(mixed ^ 0x27D4EB2F), 1).to(tl.uint32)
    what = mix32(token.to(tl.uint32) ^ mix32(position.to(tl.uint32) + 0x9E3779B9))
    return mix32(first ^ what), mix32(second ^ mix32(what + 0x165667B1))


@triton.jit  # type: ignore[untyped-decorator]
def slot_mark(first: tl.tensor, second: tl.tensor) -> tl.tensor:
    """What is kept of a fingerprint with the slot."""
    return (first ^ second).to(tl.int32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def row_bits(second: tl.tensor) -> tl.tensor:
    """BITS_A_ROW bits of a 64-bit word, some of them perhaps the same."""
    one = tl.full(second.shape, 1, tl.uint64)
    bits = one << (second & 63).to(tl.uint64)
    bits |= one << ((second >> 6) & 63).to(tl.uint64)
    bits |= one << ((second >> 12) & 63).to(tl.uint64)
    bits |= one << ((second >> 18) & 63).to(tl.uint64)
    return bits.to(tl.int64, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def put(words: tl.tensor, bits: tl.tensor, live: tl.tensor, taken: tl.tensor) -> None:
    """Set each row's bits in its word, and count the rows that had not all of theirs."""
    before = tl.atomic_or(words, bits, mask=live, sem="relaxed")
    added = tl.sum((live & ((before & bits) != bits)).to(tl.int32), 0)
    if added > 0:
        tl.atomic_add(taken, added, sem="relaxed")


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["count", "num_slots", "num_layers"],
    do_not_specialize_on_alignment=["slots", "tokens", "positions"],
)
def record_kernel(
    words: tl.tensor,
    num_words: tl.tensor,
    current: tl.tensor,
    taken: tl.tensor,
    addresses: tl.tensor,
    strides: tl.tensor,
    samples: tl.tensor,
    recorded: tl.tensor,
    num_layers: tl.tensor,
    block_size: tl.tensor,
    num_slots: tl.tensor,
    slots: tl.tensor,
    tokens: tl.tensor,
    positions: tl.tensor,
    count: tl.tensor,
    element_bytes: tl.constexpr,
    sample_count: tl.constexpr,
    rows: tl.constexpr,
) -> None:
    """Keep the rows at `slots` with their slots and in the current generation, and count those that were not in it; -1
    and slots out of range are skipped. Grid: (ceil(count / rows),)."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    slot = tl.load(slots + row, mask=row < count, other=-1).to(tl.int64)
    live = (slot >= 0) & (slot < num_slots)
    slot = tl.where(live, slot, 0)
    token = tl.load(tokens + row, mask=live, other=0)
    position = tl.load(positions + row, mask=live, other=0)
    first, second = fingerprint(
        slot,
        live,
        token,
        position,
        addresses,
        strides,
        samples,
        num_layers,
        block_size,
        element_bytes,
        sample_count,
    )
    tl.store(recorded + slot, slot_mark(first, second), mask=live)
    word = (first & (num_words - 1).to(tl.uint32)).to(tl.int64) + tl.load(current).to(tl.int64) * num_words
    put(words + word, row_bits(second), live, taken)


@triton.jit  # type: ignore[untyped-decorator]
def restored_slot(
    table: tl.tensor,
    table_stride: tl.tensor,
    table_width: tl.tensor,
    request: tl.tensor,
    position: tl.tensor,
    live: tl.tensor,
    group_block: tl.tensor,
    cp_rank: tl.tensor,
    cp_size: tl.constexpr,
    cp_interleave: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The slot of each position on this rank, negative behind the end of the row, and whether it is this rank's."""
    virtual = position % (group_block * cp_size)
    offset = virtual
    if cp_size > 1:
        live = live & (virtual // cp_interleave % cp_size == cp_rank)
        offset = virtual // (cp_interleave * cp_size) * cp_interleave + virtual % cp_interleave
    entry = position // (group_block * cp_size)
    within = live & (entry < table_width)
    block = tl.load(table + request * table_stride + entry, mask=within, other=-1).to(tl.int64)
    return block * group_block + offset, live


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["count", "num_slots", "look_up"], do_not_specialize_on_alignment=["slots"]
)
def coming_kernel(
    coming: tl.tensor,
    slots: tl.tensor,
    count: tl.tensor,
    num_slots: tl.tensor,
    look_up: tl.tensor,
    block: tl.constexpr,
) -> None:
    """coming[slot] = look_up for each slot; -1 and slots out of range are skipped. Grid: (ceil(count / block),)."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    slot = tl.load(slots + at, mask=at < count, other=-1).to(tl.int64)
    tl.store(coming + slot, look_up, mask=(slot >= 0) & (slot < num_slots))


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=[
        "table_stride",
        "table_width",
        "token_stride",
        "num_slots",
        "num_layers",
        "window",
        "cp_rank",
        "look_up",
    ]
)
def check_kernel(
    words: tl.tensor,
    num_words: tl.tensor,
    current: tl.tensor,
    taken: tl.tensor,
    addresses: tl.tensor,
    strides: tl.tensor,
    samples: tl.tensor,
    recorded: tl.tensor,
    num_layers: tl.tensor,
    block_size: tl.tensor,
    num_slots: tl.tensor,
    table: tl.tensor,
    table_stride: tl.tensor,
    table_width: tl.tensor,
    group_block: tl.tensor,
    window: tl.tensor,
    cp_rank: tl.tensor,
    request_slots: tl.tensor,
    restored_tokens: tl.tensor,
    token_ids: tl.tensor,
    token_stride: tl.tensor,
    past_unwritten: tl.tensor,
    coming: tl.tensor,
    look_up: tl.tensor,
    cells: tl.tensor,
    cells_a_slot: tl.tensor,
    alignment: tl.tensor,
    element_bytes: tl.constexpr,
    sample_count: tl.constexpr,
    cp_size: tl.constexpr,
    cp_interleave: tl.constexpr,
    rows: tl.constexpr,
    zeroing: tl.constexpr,
) -> None:
    """past_unwritten[i] = max(itself, 1 + the last restored position of request i whose row is not found), or, with
    `zeroing`, store zeros in the rows not found of the last, partial aligned block. Where coming[slot] is `look_up` the
    row counts as found, whatever is there now.

    Grid: (admitted, ceil(most restored tokens / rows)), with zeroing (admitted, ceil(alignment / rows)).
    """
    admitted = tl.program_id(0)
    request = tl.load(request_slots + admitted).to(tl.int64)
    restored = tl.where(request >= 0, tl.load(restored_tokens + admitted), 0)
    start = tl.program_id(1) * rows
    if zeroing:
        start += restored - restored % alignment
    first_seen = tl.where(window > 0, restored - window + 1, 0)
    if (start >= restored) | (start + rows <= first_seen):
        return
    position = start + tl.arange(0, rows)
    live = (position < restored) & (position >= first_seen)
    request = tl.maximum(request, 0)
    slot, mine = restored_slot(
        table,
        table_stride,
        table_width,
        request,
        position,
        live,
        group_block,
        cp_rank,
        cp_size,
        cp_interleave,
    )
    readable = mine & (slot >= 0) & (slot < num_slots)
    slot = tl.where(readable, slot, 0)
    token = tl.load(token_ids + request * token_stride + position, mask=readable, other=0)
    first, second = fingerprint(
        slot,
        readable,
        token,
        position,
        addresses,
        strides,
        samples,
        num_layers,
        block_size,
        element_bytes,
        sample_count,
    )
    word = (first & (num_words - 1).to(tl.uint32)).to(tl.int64)
    bits = row_bits(second)
    newer = tl.load(current).to(tl.int64)
    in_newer = tl.load(words + newer * num_words + word, mask=readable, other=0) & bits == bits
    in_older = tl.load(words + (1 - newer) * num_words + word, mask=readable, other=0) & bits == bits
    in_place = tl.load(recorded + slot, mask=readable, other=0) == slot_mark(first, second)
    found = readable & (in_place | in_newer | in_older)
    comes = readable & (tl.load(coming + slot, mask=readable, other=0) == look_up)
    if zeroing:
        unwritten = readable & ~(found | comes)
        lane = tl.arange(0, sample_count)
        for layer in tl.range(0, num_layers, num_stages=1):
            page = (slot // block_size) * tl.load(strides + layer)
            address = tl.load(addresses + layer)
            for chunk in tl.range(0, cells_a_slot, sample_count, num_stages=1):
                cell_row = (layer * block_size + slot % block_size)[:, None] * cells_a_slot + (chunk + lane)[None, :]
                wanted = unwritten[:, None] & ((chunk + lane) < cells_a_slot)[None, :]
                cell = tl.load(cells + cell_row, mask=wanted, other=0).to(tl.int64) + page[:, None]
                if element_bytes == 1:
                    tl.store(address.to(tl.pointer_type(tl.uint8)) + cell, 0, mask=wanted)
                elif element_bytes == 2:
                    tl.store(address.to(tl.pointer_type(tl.uint16)) + cell, 0, mask=wanted)
                else:
                    tl.store(address.to(tl.pointer_type(tl.uint32)) + cell, 0, mask=wanted)
    else:
        put(words + newer * num_words + word, bits, found & ~in_newer & ~comes, taken)
        past = tl.max(tl.where(mine & ~(found | comes), position + 1, 0), 0)
        if past > 0:
            tl.atomic_max(past_unwritten + admitted, past, sem="relaxed")


def record_written_rows(
    filter_: WrittenRows, rows: RowCells, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> None:
    """Remember the rows that lie in `slots` now. Capturable, allocates nothing.

    slots: int32 or int64 [rows]; -1 (PAD) and slots behind the cache are skipped. tokens, positions: int32 or int64
    [rows or more], what each row was written for.

    Raises ValueError on wrong dtypes, shapes or devices. Launches nothing for zero rows.
    """
    count = slots.shape[0]
    require_vector("slots", slots, like=filter_.words, dtypes=INDEX_DTYPES)
    require_vector("tokens", tokens, like=filter_.words, at_least=count, dtypes=INDEX_DTYPES)
    require_vector("positions", positions, like=filter_.words, at_least=count, dtypes=INDEX_DTYPES)
    if count == 0:
        return
    record_kernel[(triton.cdiv(count, ROWS_A_PROGRAM),)](
        filter_.words,
        filter_.words.shape[1],
        filter_.current,
        filter_.taken,
        rows.addresses,
        rows.strides,
        rows.samples,
        rows.recorded,
        len(rows.layers),
        rows.block_size,
        rows.num_slots,
        slots,
        tokens,
        positions,
        count,
        element_bytes=rows.element_bytes,
        sample_count=SAMPLES,
        rows=ROWS_A_PROGRAM,
        num_warps=NUM_WARPS,
    )


@dataclass(frozen=True)
class Admission:
    """The requests whose restored rows are to be judged.

    rows: int32 or int64 [admitted], where in `tables` and `token_ids` each request is; -1 is skipped.
    restored_tokens: int32 [admitted]. most_restored: the largest of them, known on the host.
    token_ids: int32 [requests, tokens], each request's own. tables: one int32 [requests, blocks] a draft group, not
    shifted. coming: one int32 or int64 [rows] a draft group, the slots whose rows the step under way will store after
    this, with -1 and slots out of range skipped; none at all for no such rows.
    """

    rows: torch.Tensor
    restored_tokens: torch.Tensor
    most_restored: int
    token_ids: torch.Tensor
    tables: tuple[torch.Tensor, ...]
    coming: tuple[torch.Tensor, ...] = ()

    def by_group(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Of each draft group, its table and the slots of its coming rows."""
        none = self.rows.new_empty(0)
        return zip(self.tables, self.coming or [none] * len(self.tables), strict=True)


@dataclass(frozen=True)
class GroupRows:
    """One draft group, its rows, and which of its context-parallel ranks this is."""

    group: DraftGroup
    rows: RowCells
    cp_rank: int = 0


def find_unwritten_rows(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, past_unwritten: torch.Tensor
) -> None:
    """past_unwritten[i] = 1 + the last restored position of request i whose row is not found in some group, or what it
    holds already if that is more.

    past_unwritten: int32 [admitted], zeros to begin with. A group with a sliding window is judged on its last
    `sliding_window` - 1 restored positions: a query sees itself too, and what is further back may lie in no block.
    Under context parallelism a rank judges its own rows only: take the maximum over the ranks. A position behind the
    table's row or in a block out of range is not found. One launch a group, two where rows are coming; asynchronous.

    Raises ValueError on wrong dtypes, shapes or devices. Launches nothing where nothing is restored.
    """
    require_vector("past_unwritten", past_unwritten, like=filter_.words, at_least=admission.rows.shape[0])
    for group, (table, coming) in zip(groups, admission.by_group(), strict=True):
        _check(filter_, group, table, coming, admission, past_unwritten, alignment=1, zeroing=False)


def zero_unwritten_rows(
    filter_: WrittenRows, groups: Sequence[GroupRows], admission: Admission, alignment: int
) -> None:
    """Store zeros in the restored rows that are not found, of each request's last, partial block of `alignment` tokens.

    Such a block cannot be hidden while the query lives in it. One launch a group, two where rows are coming;
    asynchronous.

    Raises ValueError on wrong dtypes, shapes or devices. Launches nothing where nothing is restored.
    """
    for group, (table, coming) in zip(groups, admission.by_group(), strict=True):
        _check(filter_, group, table, coming, admission, None, alignment=alignment, zeroing=True)


def _check(
    filter_: WrittenRows,
    group: GroupRows,
    table: torch.Tensor,
    coming: torch.Tensor,
    admission: Admission,
    past_unwritten: torch.Tensor | None,
    *,
    alignment: int,
    zeroing: bool,
) -> None:
    admitted = admission.rows.shape[0]
    require_vector("rows", admission.rows, like=filter_.words, dtypes=INDEX_DTYPES)
    require_vector("restored_tokens", admission.restored_tokens, like=filter_.words, at_least=admitted)
    require_table("token_ids", admission.token_ids)
    require_table("a block table", table)
    require_vector("coming", coming, like=filter_.words, dtypes=INDEX_DTYPES)
    if admission.most_restored > admission.token_ids.shape[1]:
        raise ValueError(f"{admission.most_restored} tokens restored, but token_ids has {admission.token_ids.shape[1]}")
    reach = min(alignment, admission.most_restored) if zeroing else admission.most_restored
    if admitted == 0 or reach == 0:
        return
    rows = group.rows
    check_kernel[(admitted, triton.cdiv(reach, ROWS_A_PROGRAM))](
        filter_.words,
        filter_.words.shape[1],
        filter_.current,
        filter_.taken,
        rows.addresses,
        rows.strides,
        rows.samples,
        rows.recorded,
        len(rows.layers),
        rows.block_size,
        rows.num_slots,
        table,
        table.stride(0),
        table.shape[1],
        group.group.block_size,
        group.group.sliding_window,
        group.cp_rank,
        admission.rows,
        admission.restored_tokens,
        admission.token_ids,
        admission.token_ids.stride(0),
        past_unwritten,
        rows.coming,
        _number_with_coming(filter_, rows, coming),
        rows.cells,
        rows.cells.shape[2],
        alignment,
        element_bytes=rows.element_bytes,
        sample_count=SAMPLES,
        cp_size=group.group.cp_size,
        cp_interleave=group.group.cp_interleave,
        rows=ROWS_A_PROGRAM,
        zeroing=zeroing,
        num_warps=NUM_WARPS,
    )


def _number_with_coming(filter_: WrittenRows, rows: RowCells, slots: torch.Tensor) -> int:
    """Mark each of `slots` with the number of a new look-up."""
    look_up, count = filter_.number_look_up(), slots.shape[0]
    if count:
        coming_kernel[(triton.cdiv(count, COMING_A_PROGRAM),)](
            rows.coming, slots, count, rows.num_slots, look_up, block=COMING_A_PROGRAM, num_warps=NUM_WARPS
        )
    return look_up
