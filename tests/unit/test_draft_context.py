"""What a worker's draft context hides of restored rows: those that its drafter did not write, in whole blocks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.hidden_lengths import COUNTED
from dspark_kernels.written_rows import Admission
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_cli.draft_context.context import DraftContext, MaximumOverRanks
from dspark_cli.draft_context.policy import Policy
from dspark_cli.draft_context.row_store import DraftLayers, build_row_store

CPU = torch.device("cpu")
REQUESTS = 3
MAX_TOKENS = 60
WIDTH = 5
GROUPS = (DraftGroup(4), DraftGroup(6))
ALIGNMENT = 12
NUM_SLOTS = REQUESTS + 1


@pytest.fixture(autouse=True)
def inference_mode() -> Iterator[None]:
    """As vLLM runs its steps; what is made in it can be written to in it only."""
    with torch.inference_mode():
        yield


class Worker:
    """A drafter of two layers a group, one with K and V beside each other and one with all K in front of all V.

    Request r has row r of the block tables, and blocks of its own; its request slot is another number.
    """

    def __init__(
        self,
        policy: Policy = Policy.VALIDITY,
        groups: Sequence[DraftGroup] = GROUPS,
        maximum_over_ranks: MaximumOverRanks | None = None,
    ) -> None:
        self._draw = torch.Generator().manual_seed(0)
        self.token_ids = torch.randint(0, 150_000, (REQUESTS, MAX_TOKENS), generator=self._draw, dtype=torch.int32)
        self.layers, self.tables = [], []
        for group in groups:
            width = -(-MAX_TOKENS // group.block_size)
            blocks = 1 + REQUESTS * width
            together = torch.ones(blocks, group.block_size, 2, WIDTH, dtype=torch.bfloat16)
            apart = torch.ones(2, blocks, group.block_size, WIDTH, dtype=torch.bfloat16)
            self.layers.append(DraftLayers(group, [together, apart], blocks * group.block_size))
            order = torch.randperm(REQUESTS * width, generator=self._draw).to(torch.int32)
            self.tables.append(1 + order.view(REQUESTS, width))
        store = build_row_store(self.layers, self._store_in, CPU)
        self.context = DraftContext(policy, store, NUM_SLOTS, CPU, maximum_over_ranks)

    def draft(self, request: int, positions: Sequence[int]) -> None:
        """Store context rows, and say so."""
        where = torch.tensor(positions)
        self.context.store.written.expect(len(positions))
        for group, layers in enumerate(self.layers):
            slots = self.slots_of(group, request, where)
            self._store(layers, slots)
            self.context.record(group, slots, self.token_ids[request, where], where)

    def row(self, request: int, position: int, *, group: int = 0) -> list[torch.Tensor]:
        """Views of the row in each layer of the group, [2, WIDTH]: its K and its V."""
        slot = int(self.slots_of(group, request, torch.tensor([position])))
        block, offset = divmod(slot, self.layers[group].group.block_size)
        together, apart = self.layers[group].caches
        return [together[block, offset], apart[:, block, offset]]

    def damage(self, request: int, *positions: int, group: int = 0, layer: int = 0) -> None:
        for position in positions:
            self.row(request, position, group=group)[layer][1, WIDTH - 1] += 1

    def admit(self, restored: Mapping[int, int], coming: Mapping[int, Sequence[int]] | None = None) -> None:
        """Requests come with restored tokens, and the next draft step judges them. coming: positions by request whose
        rows that step is about to store."""
        for request, tokens in restored.items():
            self.context.admit(slot_of(request), tokens)
        slots = self.context.unjudged()
        there = self.context.carry_over(slots)
        admission = Admission(
            rows=torch.tensor([slot_of(slot) for slot in slots], dtype=torch.int64),
            restored_tokens=there[1],
            most_restored=max(slots.values(), default=0),
            token_ids=self.token_ids,
            tables=tuple(self.tables),
            coming=tuple(self._coming(group, coming or {}) for group in range(len(self.tables))),
        )
        self.context.judge(slots, there, admission)

    def hidden(self, request: int) -> int:
        return int(self.context.hidden_tokens[slot_of(request)])

    def may_hide(self, *requests: int) -> bool:
        return self.context.hides_in(np.array([slot_of(request) for request in requests]))

    def counted(self, name: str) -> int:
        return self.context.totals()[name]

    def _coming(self, group: int, coming: Mapping[int, Sequence[int]]) -> torch.Tensor:
        slots = [self.slots_of(group, request, torch.tensor(positions)) for request, positions in coming.items()]
        return torch.cat([torch.tensor([-1]), *slots])

    def slots_of(self, group: int, request: int, positions: torch.Tensor) -> torch.Tensor:
        block_size = self.layers[group].group.block_size
        return self.tables[group][request][positions // block_size].long() * block_size + positions % block_size

    def _store_in(self, slots: torch.Tensor, group: int) -> None:
        self._store(self.layers[group], slots)

    def _store(self, layers: DraftLayers, slots: torch.Tensor) -> None:
        blocks, offsets = slots // layers.group.block_size, slots % layers.group.block_size
        together, apart = layers.caches
        draws = torch.randn(2, len(slots), 2, WIDTH, generator=self._draw).to(torch.bfloat16)
        together[blocks, offsets] = draws[0]
        apart[:, blocks, offsets] = draws[1].transpose(0, 1)


def slot_of(request: int) -> int:
    """The request slot of a table's row, and the other way round."""
    return REQUESTS - request


def test_restored_rows_that_the_drafter_wrote_are_kept() -> None:
    worker = Worker()
    worker.draft(0, range(50))

    worker.admit({0: 50})

    assert worker.hidden(0) == 0
    assert worker.context.totals() == dict(zip(COUNTED, (1, 50, 50, 0, 0), strict=True))


def test_restored_rows_that_nobody_wrote_are_hidden() -> None:
    worker = Worker()
    worker.draft(0, range(48))

    worker.admit({1: 48})

    assert worker.hidden(1) == 48
    assert worker.context.totals() == dict(zip(COUNTED, (1, 48, 0, 48, 0), strict=True))


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(("position", "hidden"), [(0, 12), (11, 12), (12, 24), (30, 36), (47, 48)])
def test_a_damaged_row_hides_the_whole_blocks_of_all_groups_up_to_it(
    group: int, layer: int, position: int, hidden: int
) -> None:
    worker = Worker()
    worker.draft(2, range(48))
    worker.damage(2, position, group=group, layer=layer)

    worker.admit({2: 48})

    assert worker.hidden(2) == hidden
    assert worker.counted("valid_tokens") == 48 - hidden
    assert worker.counted("zeroed_tokens") == 0


def test_rows_that_the_step_of_admission_stores_are_kept() -> None:
    worker = Worker()
    worker.draft(1, range(20))

    worker.admit({1: 53}, coming={1: range(20, 53)})

    assert worker.hidden(1) == 0
    assert worker.context.totals() == dict(zip(COUNTED, (1, 53, 53, 0, 0), strict=True))


def test_rows_that_neither_were_written_nor_come_are_hidden() -> None:
    worker = Worker()
    worker.draft(1, range(19))

    worker.admit({1: 53}, coming={1: range(20, 53)})

    assert worker.hidden(1) == 24


def test_damage_behind_the_restored_tokens_does_not_matter() -> None:
    worker = Worker()
    worker.draft(0, range(60))
    worker.damage(0, 40)

    worker.admit({0: 40})

    assert worker.hidden(0) == 0


def test_the_same_rows_are_stale_for_a_request_with_other_tokens() -> None:
    worker = Worker()
    worker.draft(0, range(48))
    worker.token_ids[0, 20] += 1

    worker.admit({0: 48})

    assert worker.hidden(0) == 24


def test_unwritten_rows_of_a_partial_last_block_are_zeroed_and_counted() -> None:
    worker = Worker()
    worker.draft(0, range(53))
    worker.damage(0, 48, 49, 50, group=1)
    kept = [row.clone() for group in (0, 1) for row in worker.row(0, 51, group=group)]
    of_other_group = [row.clone() for row in worker.row(0, 49, group=0)]

    worker.admit({0: 53})

    assert worker.hidden(0) == 48
    assert worker.context.totals() == dict(zip(COUNTED, (1, 53, 2, 48, 3), strict=True))
    assert all(not row.any() for position in (48, 49, 50) for row in worker.row(0, position, group=1))
    assert all(torch.equal(*pair) for pair in zip(worker.row(0, 49, group=0), of_other_group, strict=True))
    now = [row for group in (0, 1) for row in worker.row(0, 51, group=group)]
    assert all(torch.equal(*pair) for pair in zip(now, kept, strict=True))


def test_what_can_be_hidden_is_not_written_to() -> None:
    worker = Worker()
    worker.draft(0, range(48))
    worker.damage(0, 5, 47)
    before = [cache.clone() for layers in worker.layers for cache in layers.caches]

    worker.admit({0: 48})

    assert worker.hidden(0) == 48
    after = [cache for layers in worker.layers for cache in layers.caches]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


@pytest.mark.parametrize(("restored", "hidden"), [(11, 0), (12, 12), (40, 36), (48, 48)])
def test_the_policy_restored_hides_whole_blocks_however_good(restored: int, hidden: int) -> None:
    worker = Worker(Policy.RESTORED)
    worker.draft(0, range(60))

    worker.admit({0: restored})

    assert worker.hidden(0) == hidden
    assert worker.context.totals() == dict(zip(COUNTED, (1, restored, restored - hidden, hidden, 0), strict=True))


def test_the_policy_restored_zeroes_what_it_cannot_hide() -> None:
    worker = Worker(Policy.RESTORED)
    worker.draft(0, range(40))
    worker.damage(0, 37)

    worker.admit({0: 40})

    assert worker.hidden(0) == 36
    assert not any(row.any() for row in worker.row(0, 37))
    assert worker.row(0, 38)[0].any()


def test_off_hides_and_writes_and_counts_nothing() -> None:
    worker = Worker(Policy.OFF)
    before = [cache.clone() for layers in worker.layers for cache in layers.caches]

    worker.admit({0: 41, 1: 36})

    assert not worker.context.hidden_tokens.any()
    assert not worker.may_hide(0, 1)
    assert set(worker.context.totals().values()) == {0}
    after = [cache for layers in worker.layers for cache in layers.caches]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_requests_of_one_step_are_judged_each_by_itself() -> None:
    worker = Worker()
    for request in range(REQUESTS):
        worker.draft(request, range(48))
    worker.damage(0, 3)
    worker.damage(2, 30)

    worker.admit({2: 48, 0: 24, 1: 36})

    assert [worker.hidden(request) for request in range(REQUESTS)] == [12, 0, 36]
    assert worker.context.totals() == dict(zip(COUNTED, (3, 108, 60, 48, 0), strict=True))


@pytest.mark.parametrize(("position", "hidden"), [(28, 0), (29, 36)])
def test_what_no_query_sees_behind_a_sliding_window_is_not_judged(position: int, hidden: int) -> None:
    worker = Worker(groups=(DraftGroup(4, sliding_window=20), DraftGroup(6)))
    worker.draft(0, range(48))
    worker.damage(0, position)

    worker.admit({0: 48})

    assert worker.hidden(0) == hidden


def test_a_slot_taken_without_restored_tokens_loses_what_was_hidden_there() -> None:
    worker = Worker()
    worker.admit({0: 48, 1: 36})

    worker.context.admit(slot_of(0), 0)

    assert not worker.may_hide(0)
    assert worker.may_hide(0, 1)
    assert (worker.hidden(0), worker.hidden(1)) == (0, 36)
    assert worker.counted("admissions") == 2


def test_a_slot_is_cleared_though_nobody_was_judged_since_its_last_request_came() -> None:
    worker = Worker()
    worker.admit({0: 48, 1: 36})
    worker.context.admit(slot_of(0), 36)

    worker.context.admit(slot_of(0), 0)

    assert worker.may_hide(0, 1)
    assert (worker.hidden(0), worker.hidden(1)) == (0, 36)


def test_what_is_hidden_of_a_request_is_not_cleared_for_those_before_it() -> None:
    worker = Worker()
    worker.admit({0: 48, 1: 36})
    worker.context.admit(slot_of(0), 0)

    worker.admit({0: 24})

    assert worker.may_hide(0, 1)
    assert (worker.hidden(0), worker.hidden(1)) == (24, 36)


def test_a_request_without_restored_tokens_in_a_fresh_slot_asks_for_no_judgement() -> None:
    context = Worker().context

    context.admit(2, 0)
    context.admit(1, 7)

    assert context.unjudged() == {1: 7}
    assert context.unjudged() == {}


@pytest.mark.parametrize("written", [True, False])
def test_nobody_is_judged_for_a_request_that_left(written: bool) -> None:
    worker = Worker()
    worker.draft(0, range(48 if written else 1))
    worker.admit({0: 48})
    may_hide_before = worker.may_hide(0)

    worker.context.admit(slot_of(0), 0)

    assert may_hide_before != written
    assert worker.context.unjudged() == {}
    assert not worker.may_hide(0)
    assert worker.context.mirror.idle


def test_the_latest_admission_of_a_slot_is_judged() -> None:
    context = Worker().context

    context.admit(1, 7)
    context.admit(1, 20)

    assert context.unjudged() == {1: 20}


def test_something_may_be_hidden_until_all_is_known_to_be_good() -> None:
    worker = Worker()
    worker.draft(0, range(48))
    worker.draft(1, range(48))
    worker.damage(1, 20)
    fresh = worker.may_hide(0, 1, 2)
    worker.context.admit(slot_of(0), 48)
    admitted = worker.may_hide(0)

    worker.admit({0: 48, 1: 48})

    assert not fresh
    assert admitted
    assert not worker.may_hide(0)
    assert not worker.may_hide(0, 2)
    assert worker.may_hide(1)
    assert worker.may_hide(0, 1, 2)


def test_rows_are_stale_after_the_caches_have_lost_their_content() -> None:
    worker = Worker()
    worker.draft(0, range(48))
    with torch.inference_mode(mode=False):  # as where a worker wakes up
        worker.context.forget()

    worker.admit({0: 48})
    hidden_before = worker.hidden(0)
    worker.draft(0, range(48))
    worker.admit({0: 48})

    assert hidden_before == 48
    assert worker.hidden(0) == 0


def test_what_another_rank_found_unwritten_is_hidden_here_too() -> None:
    asked: list[torch.Tensor] = []

    def maximum(past_unwritten: torch.Tensor) -> None:
        asked.append(past_unwritten.clone())
        past_unwritten.copy_(past_unwritten.maximum(torch.tensor([26, 5], dtype=torch.int32)))

    worker = Worker(maximum_over_ranks=maximum)
    worker.draft(0, range(48))
    worker.draft(1, range(48))
    worker.damage(1, 40)

    worker.admit({0: 48, 1: 48})

    assert [past.tolist() for past in asked] == [[0, 41]]
    assert (worker.hidden(0), worker.hidden(1)) == (36, 48)
    assert worker.may_hide(0)


def test_what_another_rank_zeroed_counts_here_too() -> None:
    def maximum(past_unwritten: torch.Tensor) -> None:
        past_unwritten.fill_(38)

    worker = Worker(maximum_over_ranks=maximum)
    worker.draft(0, range(40))

    worker.admit({0: 40})

    assert worker.hidden(0) == 36
    assert worker.context.totals() == dict(zip(COUNTED, (1, 40, 2, 36, 2), strict=True))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    policy=st.sampled_from([Policy.VALIDITY, Policy.RESTORED]),
    groups=st.lists(st.sampled_from([1, 3, 4, 6, 16]), min_size=1, max_size=2).map(
        lambda sizes: [DraftGroup(size) for size in sizes]
    ),
    restored=st.lists(st.integers(0, MAX_TOKENS), min_size=REQUESTS, max_size=REQUESTS),
    damaged=st.lists(st.tuples(st.integers(0, REQUESTS - 1), st.integers(0, MAX_TOKENS - 1)), max_size=6),
)
def test_every_restored_token_is_valid_hidden_or_zeroed(
    policy: Policy, groups: list[DraftGroup], restored: list[int], damaged: list[tuple[int, int]]
) -> None:
    worker = Worker(policy, groups)
    for request in range(REQUESTS):
        worker.draft(request, range(MAX_TOKENS))
    for request, position in set(damaged):
        worker.damage(request, position, group=len(groups) - 1, layer=position % 2)
    alignment = worker.context.alignment

    worker.admit(dict(enumerate(restored)))

    totals = worker.context.totals()
    hidden = [worker.hidden(request) for request in range(REQUESTS)]
    assert totals["restored_tokens"] == sum(restored)
    assert totals["restored_tokens"] == totals["valid_tokens"] + totals["hidden_tokens"] + totals["zeroed_tokens"]
    assert totals["hidden_tokens"] == sum(hidden)
    for request, tokens in enumerate(restored):
        whole = tokens - tokens % alignment
        stale = [at for of, at in damaged if of == request and at < tokens]
        needed = min(-(-(max(stale, default=-1) + 1) // alignment) * alignment, whole)
        assert hidden[request] == (whole if policy is Policy.RESTORED else needed)
        assert worker.may_hide(request) == (hidden[request] > 0)
        for position in stale:
            row = torch.stack(worker.row(request, position, group=len(groups) - 1))
            assert position < hidden[request] or not row.any()


Seen = dict[str, set[tuple[torch.dtype, bool]]]


def launches_of(context: DraftContext) -> Seen:
    """From now on, for each kernel and tensor, its types and whether it begins at a multiple of 16 bytes: Triton
    compiles a kernel once for each."""
    seen: Seen = {}

    def watched(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        def launch(*arguments: object, **options: object) -> None:
            tensors = (
                dict(enumerate(arguments)) | vars(arguments[2]) if name != "settle" else dict(enumerate(arguments))
            )
            for at, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor):
                    seen.setdefault(f"{name} {at}", set()).add((tensor.dtype, tensor.data_ptr() % 16 == 0))
            kernel(*arguments, **options)

        return launch

    stock = context._kernels
    watching = {name: watched(name, getattr(stock, name)) for name in ("find_unwritten", "zero_unwritten", "settle")}
    context._kernels = replace(stock, **watching)
    return seen


@pytest.mark.parametrize("requests", [1, 2, 3])
def test_what_is_launched_for_requests_was_compiled_at_the_start(requests: int) -> None:
    worker = Worker()
    token_ids, *tables = (rows.repeat(2, 1) for rows in (worker.token_ids, *worker.tables))  # by slot, as V2 has them
    seen = launches_of(worker.context)
    worker.context.warm_up(token_ids, tuple(tables))
    at_the_start = dict(seen)
    seen.clear()

    slots = {slot_of(request): 50 - request for request in range(requests)}
    there = worker.context.carry_over(slots)
    worker.context.judge(slots, there, Admission(there[0], there[1], 50, token_ids, tuple(tables)))

    assert seen == at_the_start
