"""Charts of draft acceptance over time: which points are drawn, and the chart of a terminal."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise

from rich.text import Text

from dspark_cli.facts.recording import TrendPoint
from dspark_cli.facts.trend import merged

FEWEST_POINTS = 3
UNITS = ((3 * 60.0, 1.0, "s"), (3 * 3600.0, 60.0, "min"), (3 * 86400.0, 3600.0, "h"), (math.inf, 86400.0, "days"))
"""Up to this many seconds, divided by, in."""
HIT_RATE_MARKER = "\N{WHITE CIRCLE}"


@dataclass(frozen=True)
class Course:
    """A trend made ready to draw: `x` is the time since its begin, in `unit`."""

    x: tuple[float, ...]
    unit: str
    began: float | None
    """Seconds since 1970."""
    points: tuple[TrendPoint, ...]

    @property
    def lengths(self) -> list[float | None]:
        """Mean acceptance length of each stretch; None where it has no draft step."""
        return [1 + p.counted.accepted / p.counted.drafts if p.counted.drafts > 0 else None for p in self.points]

    @property
    def hit_rates(self) -> list[float | None]:
        return [point.traffic.prefix_hit_rate for point in self.points]

    @property
    def can_be_drawn(self) -> bool:
        return sum(length is not None for length in self.lengths) >= FEWEST_POINTS


def course_of(trend: Sequence[TrendPoint], at_most: int) -> Course:
    """The trend in `at_most` stretches; neighbours are counted together, so that none is left out."""
    points = _together(_in_order(trend), at_most)
    if not points:
        return Course((), "s", None, ())
    began, seconds = _times(points)
    if not all(map(math.isfinite, seconds)):
        return Course(tuple(float(i) for i in range(len(points))), "stretches", None, points)
    divisor, unit = next((divisor, unit) for limit, divisor, unit in UNITS if seconds[-1] <= limit)
    return Course(tuple(second / divisor for second in seconds), unit, began, points)


def terminal_chart(course: Course, width: int, height: int, with_hit_rate: bool = False) -> Text | None:
    """The mean acceptance length as `height` lines of `width` columns, the hit rate in % on the right.

    None where there is too little to draw, or where plotext's compiled part does not load on this machine.
    """
    try:
        import plotext
    except ImportError:
        return None
    if not course.can_be_drawn:
        return None
    plotext.terminal.limit(False, False)  # the console's width counts, not that of the terminal plotext asks
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    for x, lengths in _unbroken(course.x, course.lengths):
        figure.draw(figure.signal(x, lengths, marker="braille").lines(len(x) > 1))
    if with_hit_rate:
        for x, rates in _unbroken(course.x, [rate and 100 * rate for rate in course.hit_rates]):
            figure.draw(figure.signal(x, rates, marker=HIT_RATE_MARKER, yside="right"))
    chart = Text(str(figure.build().string(colorless=True)).rstrip("\n"), no_wrap=True)
    chart.highlight_regex("[\N{BRAILLE PATTERN BLANK}-\N{BRAILLE PATTERN DOTS-12345678}]+", "green")
    chart.highlight_regex(HIT_RATE_MARKER, "cyan")
    return chart


def _times(points: Sequence[TrendPoint]) -> tuple[float | None, list[float]]:
    """When the first stretch began, and the seconds from then to the end of each; not finite where unknown."""
    known = [point.at for point in points if point.at is not None]
    if len(known) == len(points):
        began = known[0] - (points[0].seconds or 0.0)
        return began, [at - began for at in known]
    return None, list(accumulate(math.nan if point.seconds is None else point.seconds for point in points))


def _in_order(trend: Sequence[TrendPoint]) -> list[TrendPoint]:
    if all(point.at is not None and math.isfinite(point.at) for point in trend):
        return sorted(trend, key=lambda point: point.at or 0.0)
    return list(trend)


def _together(points: Sequence[TrendPoint], at_most: int) -> tuple[TrendPoint, ...]:
    if len(points) <= at_most:
        return tuple(points)
    bounds = [round(i * len(points) / at_most) for i in range(at_most + 1)]
    return tuple(reduce(merged, points[begin:end]) for begin, end in pairwise(bounds))


def _unbroken(x: Sequence[float], y: Sequence[float | None]) -> Iterator[tuple[list[float], list[float]]]:
    """The runs without a gap, so that no line is drawn across a time of which nothing is known."""
    run: list[tuple[float, float]] = []
    for at, value in [*zip(x, y, strict=True), (0.0, None)]:
        if value is not None:
            run.append((at, value))
        elif run:
            yield [at for at, _ in run], [value for _, value in run]
            run = []
