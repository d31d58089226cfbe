"""How many draft steps there were, and what they accepted at each position, worked out from rounded figures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.sources.acceptance_log.printed_numbers import Contradictory
from dspark_cli.sources.acceptance_log.v1_figures import Figures

MOST_TRIES = 1 << 14
"""Numbers of draft steps that are tried on one line, times its positions: a made-up line must not take long."""

Positions = tuple[int, ...]
"""A count of tokens for each position."""


@dataclass(frozen=True)
class WorkedOut:
    """`unique`: no other counts would have been printed alike."""

    counted: DraftCounters
    unique: bool


def worked_out(figures: Figures) -> WorkedOut:
    """Counts that agree with every figure: drafted over positions where that does, else the likeliest.

    Raises:
        Contradictory: no counts agree.
    """
    if not figures.rates:
        return WorkedOut(NOTHING, True)
    likely = _likely_steps(figures)
    fitting = _fitting_steps(figures, islice(likely, MOST_TRIES // len(figures.rates) + 1))
    found = next(fitting, None)
    if found is None:
        raise Contradictory
    steps, least, most = found
    accepted_at, one_way = _shared_out(figures.accepted, least, most)
    unique = one_way and next(fitting, None) is None and next(likely, None) is None
    return WorkedOut(DraftCounters(steps, figures.drafted, figures.accepted, accepted_at), unique)


def _fitting_steps(figures: Figures, tried: Iterable[int]) -> Iterator[tuple[int, Positions, Positions]]:
    """The numbers of steps that agree with every figure, with the least and most accepted at each position."""
    for steps in tried:
        if bounds := _bounds_at(figures, steps):
            yield steps, *bounds


def _likely_steps(figures: Figures) -> Iterator[int]:
    """Every number of draft steps that the mean length and the sum of the rates leave, the likeliest first."""
    low, high = _fewest_steps(figures), _most_steps(figures)
    if high is None:
        yield from (low, low + 1)
        return
    full = _full_steps(figures)
    if low <= full <= high:
        yield full
    total = sum(figures.rates)
    middle = min(max(round(1000 * figures.accepted / total) if total else low, low), high)
    for distance in range(max(high - middle, middle - low) + 1):
        for steps in {middle - distance, middle + distance}:
            if low <= steps <= high and steps != full:
                yield steps


def _full_steps(figures: Figures) -> int:
    """The steps if each drafted a token at every position; one may draft none: a grammar can rule all out."""
    return -(-figures.drafted // len(figures.rates))


def _fewest_steps(figures: Figures) -> int:
    accepted, total, positions = figures.accepted, sum(figures.rates), len(figures.rates)
    return max(
        1,
        _full_steps(figures),
        -(-200 * accepted // (2 * figures.length + 1)),
        -(-2000 * accepted // (2 * total + positions)),
        # Rates that are all rounded to zero hold a token each once there are two thousand steps.
        0 if total else 2000 * -(-accepted // positions),
    )


def _most_steps(figures: Figures) -> int | None:
    """None where there is no bound."""
    by_length = (200, 2 * figures.length - 1)
    by_rates = (2000, sum(max(0, 2 * rate - 1) for rate in figures.rates))
    return min(
        (number * figures.accepted // least for number, least in (by_length, by_rates) if least > 0), default=None
    )


def _bounds_at(figures: Figures, steps: int) -> tuple[Positions, Positions] | None:
    """The least and most accepted at each position after `steps` draft steps, None where a figure disagrees.

    A figure that lies half-way may have been rounded to either side.
    """
    if abs(200 * figures.accepted - 2 * figures.length * steps) > steps:
        return None
    least = tuple(max(0, -((1 - 2 * rate) * steps // 2000)) for rate in figures.rates)
    most = tuple(min(steps, (2 * rate + 1) * steps // 2000) for rate in figures.rates)
    if any(low > high for low, high in zip(least, most, strict=True)):
        return None
    return (least, most) if sum(least) <= figures.accepted <= sum(most) else None


def _shared_out(accepted: int, least: Positions, most: Positions) -> tuple[Positions, bool]:
    """Numbers between `least` and `most` that add up to `accepted`, and whether they are the only ones.

    Neither bound rises from position to position, and so neither do the numbers.
    """
    room = sum(most) - sum(least)
    if not room:
        return least, True
    over = accepted - sum(least)
    shared = [(low * (room - over) + high * over) // room for low, high in zip(least, most, strict=True)]
    missing = accepted - sum(shared)
    for at, high in enumerate(most):
        if missing and shared[at] < high:
            shared[at] += 1
            missing -= 1
    free = sum(high > low for low, high in zip(least, most, strict=True))
    return tuple(shared), free == 1 or over in (0, room)
