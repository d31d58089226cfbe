"""The trend: bounded, whatever it takes, and nothing lost in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import TrendPoint
from dspark_cli.facts.traffic import Traffic
from dspark_cli.facts.trend import MOST_POINTS, Trend, merged


def point(steps: int, seconds: float | None = 10.0, at: float | None = None) -> TrendPoint:
    return TrendPoint(at, seconds, DraftCounters(steps, 7 * steps, 2 * steps, (steps, steps)))


def steps_of(trend: Trend) -> list[int]:
    return [each.counted.drafts for each in trend.points]


def test_points_are_kept_as_they_come_while_there_is_room() -> None:
    trend = Trend(4)
    for steps in (1, 2, 3, 4):
        trend.add(point(steps))
    assert steps_of(trend) == [1, 2, 3, 4]


def test_when_full_neighbours_merge_and_later_points_are_as_long_as_they_are() -> None:
    trend = Trend(4)
    for _ in range(9):
        trend.add(point(1))
    assert steps_of(trend) == [4, 4, 1]
    assert [each.seconds for each in trend.points] == [40, 40, 10]


def test_a_point_of_no_length_belongs_to_the_one_before() -> None:
    trend = Trend(4)
    for seconds in (None, 0.0, 10.0, 0.0):
        trend.add(point(1, seconds))
    assert [(each.counted.drafts, each.seconds) for each in trend.points] == [(2, None), (2, 10.0)]


def test_a_merged_point_ends_with_the_later_one_and_its_length_is_known_where_both_are() -> None:
    early = TrendPoint(100.0, 5.0, DraftCounters(1, 3, 1, (1,)), Traffic(prompt_tokens=4, preemptions=1))
    late = TrendPoint(110.0, 10.0, DraftCounters(2, 6, 3, (2, 1)), Traffic(prompt_tokens=6))
    both = merged(early, late)
    assert both == TrendPoint(110.0, 15.0, DraftCounters(3, 9, 4, (3, 1)), Traffic(prompt_tokens=10))
    assert merged(point(1, None), late).seconds is None


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.0, 1.0, 10.0, 3600.0])), max_size=200),
    st.sampled_from([2, 4, 10]),
)
def test_sums_are_exact_and_the_number_of_points_bounded(taken: list[tuple[int, float]], most: int) -> None:
    trend = Trend(most)
    for steps, seconds in taken:
        trend.add(point(steps, seconds))
    assert len(trend.points) <= most
    assert sum(steps_of(trend)) == sum(steps for steps, _ in taken)
    assert sum(each.seconds or 0 for each in trend.points) == sum(seconds for _, seconds in taken)
    assert all(each.counted.accepted == 2 * each.counted.drafts for each in trend.points)


def test_a_log_of_a_year_keeps_its_points_and_at_least_half_of_them() -> None:
    trend = Trend()
    for _ in range(20_000):
        trend.add(point(1))
    assert MOST_POINTS / 2 <= len(trend.points) <= MOST_POINTS
    assert sum(steps_of(trend)) == 20_000


@pytest.mark.parametrize("most", [0, 1, 3, -2])
def test_a_number_of_points_that_cannot_merge_by_twos_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match="even"):
        Trend(most)
