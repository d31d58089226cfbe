"""The rows of a drafter are found by letting it write into the null block; what is not understood is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dspark_kernels.cache_cells import CellsNotFound
from dspark_kernels.draft_groups import DraftGroup

from dspark_cli.draft_context.row_store import DraftLayers, build_row_store, cache_of, sliding_window_of

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE, WIDTH = 9, 4, 3
NUM_SLOTS = BLOCKS * BLOCK_SIZE


def cache_of_ones() -> torch.Tensor:
    return torch.ones(BLOCKS, BLOCK_SIZE, 2, WIDTH)


def store_sevens(cache: torch.Tensor, slots: torch.Tensor) -> None:
    cache[slots // BLOCK_SIZE, slots % BLOCK_SIZE] = 7


def test_each_slot_owns_what_the_drafter_writes_there() -> None:
    cache = cache_of_ones()

    store = build_row_store(
        [DraftLayers(DraftGroup(BLOCK_SIZE), [cache], NUM_SLOTS)], lambda slots, _group: store_sevens(cache, slots), CPU
    )

    (group,) = store.groups
    (layer,) = group.rows.layers
    assert layer.at(torch.tensor([7])).tolist() == [list(range(7 * 2 * WIDTH, 8 * 2 * WIDTH))]


def test_only_the_null_block_is_written_and_it_is_left_zeroed() -> None:
    caches = [cache_of_ones(), cache_of_ones(), cache_of_ones()]
    of_group = [caches[:1], caches[1:]]
    asked: list[torch.Tensor] = []

    def store_rows(slots: torch.Tensor, group: int) -> None:
        asked.append(slots)
        for cache in of_group[group]:
            store_sevens(cache, slots)

    groups = [
        DraftLayers(DraftGroup(BLOCK_SIZE), of_group[0], NUM_SLOTS),
        DraftLayers(DraftGroup(BLOCK_SIZE, sliding_window=8), of_group[1], NUM_SLOTS),
    ]
    build_row_store(groups, store_rows, CPU)

    assert all(not cache[0].any() for cache in caches)
    assert all((cache[1:] == 1).all() for cache in caches)
    assert set(torch.cat(asked).tolist()) == set(range(BLOCK_SIZE))
    assert all(slots.shape[0] for slots in asked)


@pytest.mark.parametrize("remembered", [1, 15])
def test_the_filter_has_room_for_the_tokens_of_all_ranks(remembered: int) -> None:
    blocks, cp_size = 2048, 4
    cache = torch.ones(blocks, BLOCK_SIZE, 2, WIDTH)
    layers = DraftLayers(DraftGroup(BLOCK_SIZE, cp_size=cp_size), [cache], blocks * BLOCK_SIZE, cp_rank=3)

    store = build_row_store([layers], lambda slots, _group: store_sevens(cache, slots), CPU, remembered)

    assert store.written.capacity == (remembered + 1) * blocks * BLOCK_SIZE * cp_size
    assert store.groups[0].cp_rank == 3


def test_a_cache_that_the_drafter_does_not_write_is_refused() -> None:
    layers = DraftLayers(DraftGroup(BLOCK_SIZE), [cache_of_ones()], NUM_SLOTS)

    with pytest.raises(CellsNotFound, match="no element of the cache changes"):
        build_row_store([layers], lambda slots, _group: None, CPU)


def test_a_cache_without_a_dimension_of_blocks_is_refused() -> None:
    layers = DraftLayers(DraftGroup(BLOCK_SIZE), [torch.ones(BLOCKS, BLOCK_SIZE)], NUM_SLOTS + 1)

    with pytest.raises(CellsNotFound, match="no dimension of"):
        build_row_store([layers], lambda slots, _group: None, CPU)


def test_a_group_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        build_row_store([DraftLayers(DraftGroup(BLOCK_SIZE), [], NUM_SLOTS)], lambda slots, _group: None, CPU)


def test_layers_of_one_group_must_be_alike() -> None:
    caches = [cache_of_ones(), cache_of_ones().to(torch.bfloat16)]

    def store_rows(slots: torch.Tensor, _group: int) -> None:
        for cache in caches:
            store_sevens(cache, slots)

    with pytest.raises(ValueError, match="differ in"):
        build_row_store([DraftLayers(DraftGroup(BLOCK_SIZE), caches, NUM_SLOTS)], store_rows, CPU)


FULL = SimpleNamespace()
FULL_AND_SAYS_SO = SimpleNamespace(sliding_window=None)
NEAR, FAR = SimpleNamespace(sliding_window=512), SimpleNamespace(sliding_window=2048)


def uniform(**specs: Any) -> Any:
    """A spec of a group whose layers differ, as vLLM's UniformTypeKVCacheSpecs."""
    return SimpleNamespace(kv_cache_specs=specs)


@pytest.mark.parametrize(
    ("spec", "layers", "window"),
    [
        (FULL, ["a"], 0),
        (FULL_AND_SAYS_SO, ["a"], 0),
        (NEAR, ["a", "b"], 512),
        (uniform(a=NEAR), ["a"], 512),
        (uniform(a=NEAR, b=FAR), ["a", "b"], 2048),
        (uniform(a=NEAR, b=FULL), ["a", "b"], 0),
        (uniform(a=NEAR, b=FULL_AND_SAYS_SO), ["b", "a"], 0),
        (uniform(a=NEAR, of_the_target=FULL), ["a"], 512),
        (uniform(a=NEAR), [], 0),
    ],
)
def test_a_group_sees_as_far_as_its_farthest_draft_layer(spec: Any, layers: list[str], window: int) -> None:
    assert sliding_window_of(spec, layers) == window


@pytest.mark.parametrize("hold", [lambda cache: cache, lambda cache: [cache], lambda cache: (cache,)])
def test_a_layer_holds_its_cache_or_a_list_of_it(hold: Any) -> None:
    cache = cache_of_ones()

    assert cache_of(SimpleNamespace(kv_cache=hold(cache))) is cache
