"""The course of the counts over a span, in so many points at most, however long the span is."""

from itertools import pairwise

from dspark_cli.facts.recording import TrendPoint

MOST_POINTS = 240


class Trend:
    """Takes points in order of time. When it is full, neighbours become one point, and so do later ones as they come.

    Every point then holds as many stretches as any other, except the last; counts and seconds add up to what was taken.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        """`most` points are kept; an even number, as they merge by twos."""
        if most < 2 or most % 2:
            raise ValueError("a trend keeps an even number of points")
        self._most = most
        self._points: list[TrendPoint] = []
        self._stretches_a_point = 1
        self._stretches_in_last = 0

    def add(self, point: TrendPoint) -> None:
        """A point of no length, like another engine's in the same second, belongs to the one before."""
        if self._points and point.seconds == 0:
            self._points[-1] = merged(self._points[-1], point)
        elif self._points and self._stretches_in_last < self._stretches_a_point:
            self._points[-1] = merged(self._points[-1], point)
            self._stretches_in_last += 1
        else:
            self._append(point)

    @property
    def points(self) -> tuple[TrendPoint, ...]:
        return tuple(self._points)

    def _append(self, point: TrendPoint) -> None:
        if len(self._points) == self._most:
            self._points = [merged(earlier, later) for earlier, later in list(pairwise(self._points))[::2]]
            self._stretches_a_point *= 2
        self._points.append(point)
        self._stretches_in_last = 1


def merged(earlier: TrendPoint, later: TrendPoint) -> TrendPoint:
    """One point for both stretches; its length is known where both are."""
    known = earlier.seconds is not None and later.seconds is not None
    return TrendPoint(
        at=later.at,
        seconds=(earlier.seconds or 0) + (later.seconds or 0) if known else None,
        counted=earlier.counted + later.counted,
        traffic=earlier.traffic + later.traffic,
    )
