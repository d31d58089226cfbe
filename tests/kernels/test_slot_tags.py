"""Slot tags tell valid context from stale, and the admission check hides just enough of it."""

from dataclasses import dataclass

import pytest
import torch
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup, GroupTensors, hidden_alignment
from dspark_kernels.draft_masking import mask_draft_context
from dspark_kernels.reference import (
    check_admission_reference,
    mix32_reference,
    slot_tag_reference,
    store_context_tags_reference,
)
from dspark_kernels.slot_tags import check_admission, clear_query_tags, store_context_tags
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.tables import GUARD, int32

SLOTS = 4000


@dataclass
class Cache:
    """Draft groups whose request slots own distinct blocks, every restored slot tagged as the request's own."""

    groups: list[DraftGroup]
    tags: list[torch.Tensor]
    tables: list[torch.Tensor]
    token_ids: torch.Tensor

    def slot_of(self, group: int, request: int, position: int) -> int:
        block_size = self.groups[group].virtual_block_size
        return int(self.tables[group][request, position // block_size]) * block_size + position % block_size

    def spoil(self, request: int, position: int, *, group: int = 0) -> None:
        self.tags[group][self.slot_of(group, request, position)] = 0

    def hidden(self, slots: torch.Tensor, restored: torch.Tensor) -> torch.Tensor:
        hidden = torch.full((self.token_ids.shape[0],), GUARD, dtype=torch.int32, device=slots.device)
        tags, tables = GroupTensors("tags", self.tags), DraftBlockTables(self.groups, self.tables)
        check_admission(tags, tables, slots, restored, self.token_ids, hidden)
        return hidden


def cache_of(
    groups: list[DraftGroup], device: torch.device, *, requests: int = 3, max_tokens: int = 1500, seed: int = 0
) -> Cache:
    draw = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(0, 150_000, (requests, max_tokens), generator=draw, dtype=torch.int32).to(device)
    tags, tables = [], []
    positions = torch.arange(max_tokens, dtype=torch.int32, device=device)
    for group in groups:
        width = -(-max_tokens // group.virtual_block_size)
        table = 1 + torch.randperm(requests * width, generator=draw).to(torch.int32).view(requests, width).to(device)
        group_tags = torch.zeros((requests * width + 1) * group.virtual_block_size, dtype=torch.int32, device=device)
        for request in range(requests):
            offsets = positions % group.virtual_block_size
            mapping = table[request].long()[positions // group.virtual_block_size] * group.virtual_block_size + offsets
            store_context_tags(group_tags, mapping, token_ids[request], positions)
        tags.append(group_tags)
        tables.append(table)
    return Cache(groups, tags, tables, token_ids)


@pytest.mark.parametrize("count", [1, 5, 1000, 1025, 3000])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_context_slots_get_the_tags_of_the_reference(
    device: torch.device, count: int, index_dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(count)
    mapping = torch.randperm(SLOTS, generator=draw)[:count].to(index_dtype)
    mapping[::7] = -1
    tokens = torch.randint(0, 200_000, (count,), generator=draw, dtype=torch.int32)
    positions = torch.randint(0, 1 << 20, (count,), generator=draw, dtype=torch.int64)
    arguments = [tensor.to(device) for tensor in (mapping, tokens, positions)]
    tags = torch.full((SLOTS,), GUARD, dtype=torch.int32, device=device)
    expected = store_context_tags_reference(tags, *arguments)

    store_context_tags(tags, *arguments)

    torch.testing.assert_close(tags, expected, rtol=0, atol=0)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_query_slots_are_cleared_and_padding_is_skipped(device: torch.device, index_dtype: torch.dtype) -> None:
    tags = torch.full((50,), 7, dtype=torch.int32, device=device)

    clear_query_tags(tags, torch.tensor([3, -1, 49, 50, 0], dtype=index_dtype, device=device))

    assert (tags == 0).nonzero().flatten().tolist() == [0, 3, 49]


def test_nothing_to_write_launches_nothing(device: torch.device) -> None:
    tags, none = torch.full((5,), 7, dtype=torch.int32, device=device), int32([], device)

    store_context_tags(tags, none, none, none)
    clear_query_tags(tags, none)

    assert (tags == 7).all()


@settings(derandomize=True)
@given(token=st.integers(0, 2**31 - 1), position=st.integers(0, 2**31 - 1))
def test_a_tag_is_an_int32_and_never_zero(token: int, position: int) -> None:
    tag = slot_tag_reference(token, position)

    assert tag != 0
    assert -(2**31) <= tag < 2**31


def test_the_one_pair_that_hashes_to_zero_is_tagged_all_the_same(device: torch.device) -> None:
    token = mix32_reference((5 + 0x9E3779B9) & 0xFFFFFFFF)  # mix32(0) is 0
    as_int32 = token - (1 << 32) if token >= 1 << 31 else token
    tags = torch.zeros(1, dtype=torch.int32, device=device)

    store_context_tags(tags, int32([0], device), int32([as_int32], device), int32([5], device))

    assert tags.tolist() == [1] == [slot_tag_reference(token, 5)]


def test_tokens_at_one_position_and_positions_of_one_token_all_differ() -> None:
    tokens = {slot_tag_reference(token, 77) for token in range(20_000)}
    positions = {slot_tag_reference(77, position) for position in range(20_000)}

    assert len(tokens) == len(positions) == 20_000


@pytest.mark.parametrize(
    ("restored", "spoiled", "hidden"),
    [
        (0, [], 0),
        (64, [], 0),
        (64, [0], 16),
        (64, [15], 16),
        (64, [16], 32),
        (64, [3, 40], 48),
        (64, [63], 64),
        (64, [64, 70], 0),
        (1500, [2, 1499], 1504),
        (1500, [2], 16),
        (1408, list(range(1408)), 1408),
    ],
)
def test_the_shortest_aligned_prefix_behind_which_all_is_valid_is_hidden(
    device: torch.device, restored: int, spoiled: list[int], hidden: int
) -> None:
    cache = cache_of([DraftGroup(16)], device)
    for position in spoiled:
        cache.spoil(1, position)

    found = cache.hidden(int32([1], device), int32([restored], device))

    assert found.tolist() == [GUARD, hidden, GUARD]


def test_a_slot_tagged_by_another_token_or_position_is_stale(device: torch.device) -> None:
    cache = cache_of([DraftGroup(16)], device)
    own = int(cache.token_ids[0, 20])
    slot = int32([cache.slot_of(0, 0, 20)], device)
    hidden = []

    for token, position in [(own, 20), (own + 1, 20), (own, 21)]:
        store_context_tags(cache.tags[0], slot, int32([token], device), int32([position], device))
        hidden.append(int(cache.hidden(int32([0], device), int32([48], device))[0]))

    assert hidden == [0, 32, 32]


def test_a_stale_residual_block_is_hidden_as_soon_as_the_query_has_left_it(device: torch.device) -> None:
    cache = cache_of([DraftGroup(16)], device)
    cache.spoil(0, 40)  # in block 2, of which 44 - 32 tokens were restored
    hidden = cache.hidden(int32([0], device), int32([44], device))
    lengths = []

    for context in (45, 47, 48, 60):
        seq_lens = int32([context + 8], device)
        tables = DraftBlockTables(cache.groups, [cache.tables[0].clone()])
        mask_draft_context(tables, seq_lens, int32([0], device), hidden, 8)
        lengths.append(context + 8 - int(seq_lens[0]))

    assert hidden[0] == 48
    assert lengths == [32, 32, 48, 48]


def test_one_hidden_length_serves_all_groups(device: torch.device) -> None:
    cache = cache_of([DraftGroup(16), DraftGroup(48)], device)
    cache.spoil(0, 20, group=0)
    cache.spoil(0, 100, group=1)
    cache.spoil(2, 50, group=0)

    found = cache.hidden(int32([0, -1, 2], device), int32([480, 480, 480], device))

    assert found.tolist() == [144, GUARD, 96]


def test_a_sliding_window_group_is_judged_on_what_its_queries_can_see(device: torch.device) -> None:
    cache = cache_of([DraftGroup(16, sliding_window=100)], device)
    cache.spoil(0, 379)
    cache.spoil(1, 380)

    found = cache.hidden(int32([0, 1], device), int32([480, 480], device))

    assert found.tolist()[:2] == [0, 384]


def test_blocks_outside_the_table_or_the_tags_count_as_stale(device: torch.device) -> None:
    cache = cache_of([DraftGroup(16)], device)
    cache.tables[0][0, 3] = 1 << 30
    narrow = Cache(cache.groups, cache.tags, [cache.tables[0][:, :5].clone()], cache.token_ids)

    assert cache.hidden(int32([0], device), int32([160], device))[0] == 64
    assert narrow.hidden(int32([1], device), int32([100], device))[1] == 112


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_admission_is_as_the_reference_says(device: torch.device, data: st.DataObject) -> None:
    sizes = st.builds(DraftGroup, st.sampled_from([1, 2, 3, 4]), sliding_window=st.sampled_from([0, 5]))
    groups = data.draw(st.lists(sizes, min_size=1, max_size=3), label="groups")
    cache = cache_of(groups, device, max_tokens=40)
    spots = st.tuples(st.integers(0, len(groups) - 1), st.integers(0, 2), st.integers(0, 39))
    for group, request, position in data.draw(st.lists(spots, max_size=6), label="spoiled"):
        cache.spoil(request, position, group=group)
    slots = int32(data.draw(st.permutations([0, 1, 2, -1]), label="slots"), device)
    restored = int32(data.draw(st.lists(st.integers(0, 44), min_size=4, max_size=4), label="restored"), device)
    poison = torch.full((3,), GUARD, dtype=torch.int32, device=device)
    expected = check_admission_reference(groups, cache.tags, cache.tables, slots, restored, cache.token_ids, poison)

    found = cache.hidden(slots, restored)

    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert (found[slots[slots >= 0].long()] % hidden_alignment(groups) == 0).all()


def test_no_admitted_request_launches_nothing(device: torch.device) -> None:
    found = cache_of([DraftGroup(16)], device).hidden(int32([], device), int32([], device))

    assert (found == GUARD).all()


def test_wrong_arguments_are_refused() -> None:
    table, tags, two = (
        torch.zeros(2, 8, dtype=torch.int32),
        torch.zeros(99, dtype=torch.int32),
        int32([0, 0], torch.device("cpu")),
    )
    tables, tag_group = DraftBlockTables([DraftGroup(16)], [table]), GroupTensors("tags", [tags])

    with pytest.raises(ValueError, match="tags must be a vector"):
        store_context_tags(tags.long(), two, two, two)
    with pytest.raises(ValueError, match="positions must have at least 2"):
        store_context_tags(tags, two, two, two[:1])
    with pytest.raises(ValueError, match="slot_mapping must be a vector"):
        clear_query_tags(tags, torch.zeros(2))
    with pytest.raises(ValueError, match="as many tag vectors"):
        check_admission(tables, tables, two, two, table, two)
    with pytest.raises(ValueError, match="token_ids must be an int32 matrix"):
        check_admission(tag_group, tables, two, two, table.long(), two)
    with pytest.raises(ValueError, match="token_ids has 1 rows"):
        check_admission(tag_group, tables, two, two, table[:1], two)
    with pytest.raises(ValueError, match="hidden_tokens must have at least 2"):
        check_admission(tag_group, tables, two, two, table, two[:1])
    with pytest.raises(ValueError, match="token_ids on meta"):
        check_admission(tag_group, tables, two, two, table.to("meta"), two)
