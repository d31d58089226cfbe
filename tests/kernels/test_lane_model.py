"""The lane model finds what an unguarded shift does wrong, and nothing wrong with a guarded one."""

from math import comb

import pytest
from dspark_kernels.lane_model import (
    Barrier,
    Exploration,
    LaneProgram,
    Load,
    Ordering,
    Store,
    TooManyStatesError,
    explore,
    explore_all,
    explore_random,
    sequence_length_program,
    shift_program,
    smallest_counter_example,
)
from hypothesis import given, settings
from hypothesis import strategies as st

SOUND = [Ordering.GUARDED, Ordering.GUARDED_PREFETCH]
SMALL_SHAPES = [
    {"row": 3, "shift": 1, "chunk": 2, "warps": 2, "lanes": 1},
    {"row": 6, "shift": 1, "chunk": 4, "warps": 2, "lanes": 2},
    {"row": 9, "shift": 2, "chunk": 4, "warps": 2, "lanes": 2},
    {"row": 9, "shift": 1, "chunk": 8, "warps": 2, "lanes": 2},
    {"row": 9, "shift": 3, "chunk": 8, "warps": 2, "lanes": 2, "width": 2},
    {"row": 7, "shift": 1, "chunk": 3, "warps": 3, "lanes": 1},
    {"row": 6, "shift": 1, "chunk": 4, "warps": 2, "lanes": 2, "lockstep": False},
]


@pytest.mark.parametrize("shape", SMALL_SHAPES)
@pytest.mark.parametrize("ordering", SOUND)
def test_no_interleaving_of_a_guarded_shift_is_wrong(ordering: Ordering, shape: dict[str, int]) -> None:
    found = explore_all(shift_program(ordering, **shape))  # type: ignore[arg-type]

    assert found.exhaustive
    assert found.schedules > 1
    assert found.wrong == 0
    assert found.counter_example is None


@pytest.mark.parametrize("shape", SMALL_SHAPES)
def test_some_interleaving_of_the_unguarded_shift_is_wrong_and_some_is_right(shape: dict[str, int]) -> None:
    found = explore_all(shift_program(Ordering.UNGUARDED, **shape))  # type: ignore[arg-type]

    assert 0 < found.wrong < found.schedules
    assert found.counter_example is not None


def test_a_barrier_after_the_stores_does_not_help() -> None:
    found = explore_all(shift_program(Ordering.BARRIER_AFTER_STORES, row=6, shift=1, chunk=4, warps=2, lanes=2))

    assert found.wrong > 0


def test_a_single_lockstep_warp_needs_no_barrier() -> None:
    found = explore_all(shift_program(Ordering.UNGUARDED, row=9, shift=1, chunk=4, warps=1, lanes=4))

    assert (found.schedules, found.wrong) == (1, 0)


def test_lanes_that_run_apart_need_the_barrier_within_a_warp_too() -> None:
    apart = shift_program(Ordering.UNGUARDED, row=5, shift=1, chunk=4, warps=1, lanes=4, lockstep=False)

    assert explore_all(apart).wrong > 0


def test_a_shift_that_jumps_over_the_whole_chunk_cannot_race() -> None:
    found = explore_all(shift_program(Ordering.UNGUARDED, row=8, shift=4, chunk=4, warps=2, lanes=2))

    assert found.wrong == 0


def test_the_smallest_counter_example_is_a_store_overtaking_a_load() -> None:
    example = smallest_counter_example(Ordering.UNGUARDED)

    assert example is not None
    assert str(example).splitlines() == [
        "row of 3, shift 1, chunk 2, 2 warps of 1 lanes, 1 entries a thread: no barrier",
        "  1. warp 1 loads from 2",
        "  2. warp 1 stores to 1",
        "  3. warp 0 loads from 1  <- 1 already overwritten",
    ]


@pytest.mark.parametrize("ordering", SOUND)
def test_no_small_guarded_shift_has_a_counter_example(ordering: Ordering) -> None:
    assert smallest_counter_example(ordering, max_row=7) is None


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_the_exhaustive_search_counts_every_schedule(steps: int) -> None:
    independent = tuple(tuple(Load(0, (warp,)) for _ in range(steps)) for warp in range(2))

    found = explore_all(LaneProgram("two warps that share nothing", independent, (0, 1), (0, 1)))

    assert found.schedules == comb(2 * steps, steps)


def test_a_barrier_that_one_warp_never_reaches_is_an_error() -> None:
    stuck = LaneProgram("stuck", ((Barrier(),), (Load(0, (0,)),)), (0,), (0,))

    with pytest.raises(ValueError, match="wait at a barrier for ever"):
        explore_all(stuck)
    with pytest.raises(ValueError, match="wait at a barrier for ever"):
        explore_random(stuck, schedules=1, seed=0)


def test_a_search_that_grows_too_large_says_so() -> None:
    with pytest.raises(TooManyStatesError):
        explore_all(shift_program(Ordering.UNGUARDED, row=33, shift=1, chunk=8, warps=4, lanes=2), max_states=100)


def test_the_final_memory_alone_can_make_a_schedule_wrong() -> None:
    last_store_wins = LaneProgram(
        "two stores to one entry",
        ((Load(0, (0,)), Store(0, (2,))), (Load(0, (1,)), Store(0, (2,)))),
        (5, 6, 0),
        (5, 6, 6),
    )

    found = explore_all(last_store_wins)

    assert found.wrong == found.schedules // 2


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("shift", [1, 7, 31])
def test_random_schedules_of_long_rows_find_the_race_and_none_behind_a_barrier(shift: int, seed: int) -> None:
    def found_in(ordering: Ordering) -> Exploration:
        program = shift_program(ordering, row=512, shift=shift, chunk=128, warps=4, lanes=32)
        return explore(program, seed=seed, schedules=40)

    unguarded = found_in(Ordering.UNGUARDED)
    guarded = [found_in(ordering) for ordering in SOUND]

    assert not unguarded.exhaustive
    assert unguarded.wrong > 0
    assert unguarded.counter_example is not None
    assert "already overwritten" in unguarded.counter_example.steps[-1]
    assert [found.wrong for found in guarded] == [0, 0]


def test_random_schedules_repeat_with_their_seed() -> None:
    program = shift_program(Ordering.UNGUARDED, row=64, shift=3, chunk=32, warps=4, lanes=4)

    assert explore_random(program, schedules=50, seed=7) == explore_random(program, schedules=50, seed=7)


@pytest.mark.parametrize("warps", [2, 3, 4])
def test_a_shared_sequence_length_is_safe_behind_a_barrier_only(warps: int) -> None:
    assert explore_all(sequence_length_program(warps=warps, guarded=True)).wrong == 0
    assert explore_all(sequence_length_program(warps=warps, guarded=False)).wrong > 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    row=st.integers(1, 12),
    shift=st.integers(1, 13),
    warps=st.integers(1, 3),
    lanes=st.integers(1, 2),
    wraps=st.integers(1, 2),
    ordering=st.sampled_from(SOUND),
)
def test_any_small_guarded_shift_is_right(
    row: int, shift: int, warps: int, lanes: int, wraps: int, ordering: Ordering
) -> None:
    program = shift_program(ordering, row=row, shift=shift, chunk=warps * lanes * wraps, warps=warps, lanes=lanes)

    found = explore(program, schedules=50)

    assert found.wrong == 0


def test_a_chunk_must_fill_the_lanes() -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        shift_program(Ordering.GUARDED, row=8, shift=1, chunk=12, warps=2, lanes=4)
