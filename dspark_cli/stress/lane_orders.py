"""What the lane model says of the shift's ordering rules: a model of a program's warps, not the kernel."""

from dspark_kernels.lane_model import Ordering, explore, shift_program

from dspark_cli.stress.verdict import OrderingVerdict

SMALL_ROWS = range(2, 9)
LARGE_SHIFTS = (1, 7, 31, 127, 129)
RANDOM_SCHEDULES = 200


def explore_orderings(seed: int) -> list[OrderingVerdict]:
    """The shipped orderings, which must never go wrong, and the unguarded one, which must."""
    return [_explore(ordering, seed) for ordering in (Ordering.GUARDED, Ordering.GUARDED_PREFETCH, Ordering.UNGUARDED)]


def _explore(ordering: Ordering, seed: int) -> OrderingVerdict:
    small = [
        explore(shift_program(ordering, row=row, shift=shift, chunk=chunk, warps=2, lanes=1))
        for row in SMALL_ROWS
        for shift in range(1, row)
        for chunk in (2, 4)
    ]
    large = [
        explore(
            shift_program(ordering, row=512, shift=shift, chunk=128, warps=4, lanes=8),
            seed=seed,
            schedules=RANDOM_SCHEDULES,
        )
        for shift in LARGE_SHIFTS
    ]
    found = [*small, *large]
    example = next((found.counter_example for found in small if found.counter_example), None)
    return OrderingVerdict(
        ordering.value if ordering is not Ordering.UNGUARDED else f"{ordering.value} (must go wrong)",
        ordering is not Ordering.UNGUARDED,
        sum(exploration.schedules for exploration in found),
        sum(exploration.wrong for exploration in found),
        None if example is None else [example.program, *example.steps],
    )
