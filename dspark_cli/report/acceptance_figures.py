"""The page's figures as inline SVG. No name from outside is drawn, and the same report gives the same bytes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.intervals import acceptance_length_interval
from dspark_cli.report.acceptance_words import clock
from dspark_cli.report.charts import Course
from dspark_cli.report.figure_parts import FIRST, SECOND, THIRD, inline_svg, page_figure, page_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def profile_figure(now: AcceptanceProfile, since_start: AcceptanceProfile | None) -> str:
    """Rate and conditional rate by position with 95% intervals; beside a window, the rate since server start."""
    from matplotlib.ticker import MaxNLocator

    with page_settings():
        figure, (axes,) = page_figure(rows=1, height=3.4)
        positions = [at.position for at in now.positions]
        _with_intervals(
            axes,
            [position - 0.08 for position in positions],
            [at.rate for at in now.positions],
            [(at.rate_low, at.rate_high) for at in now.positions],
            FIRST,
            "o-",
            "accepted, of all draft steps" if since_start is None else "accepted in the window, of all draft steps",
        )
        conditional = [at for at in now.positions if at.conditional_rate is not None]
        _with_intervals(
            axes,
            [at.position + 0.08 for at in conditional],
            [at.conditional_rate or 0.0 for at in conditional],
            [(at.conditional_low or 0.0, at.conditional_high or 0.0) for at in conditional],
            SECOND,
            "s--",
            "given that the position before was accepted",
        )
        if since_start is not None and since_start.positions:
            axes.plot(
                [at.position for at in since_start.positions],
                [at.rate for at in since_start.positions],
                "^:",
                color=THIRD,
                label="accepted since server start",
            )
        _as_shares(axes)
        axes.set_xlabel("draft position")
        axes.set_ylabel("acceptance rate")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1))
        return inline_svg(figure, "profile", "Acceptance rate by draft position with 95% intervals")


def trend_figure(course: Course) -> str:
    """Mean acceptance length over time with its 95% interval, and under it the prefix hit rate where it is known."""
    known_hits = any(rate is not None for rate in course.hit_rates)
    with page_settings():
        figure, rows = page_figure(rows=2 if known_hits else 1, height=4.4 if known_hits else 3)
        lengths = rows[0]
        low, high = _bounds(course)
        lengths.fill_between(course.x, low, high, color=FIRST, alpha=0.2, linewidth=0)
        lengths.plot(course.x, _gaps(course.lengths), "o-", markersize=2, color=FIRST)
        lengths.set_ylabel("mean acceptance length")
        if known_hits:
            rows[1].plot(course.x, _gaps(course.hit_rates), "o-", markersize=2, color=SECOND)
            rows[1].set_ylabel("prefix hit rate")
            _as_shares(rows[1])
        began = clock(course.began)
        rows[-1].set_xlabel(f"{course.unit} from {began}" if began else course.unit)
        return inline_svg(figure, "trend", "Mean acceptance length over time")


def _with_intervals(
    axes: "Axes",
    x: Sequence[float],
    y: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    color: str,
    style: str,
    label: str,
) -> None:
    reach = [
        [max(0.0, rate - low) for rate, (low, _) in zip(y, bounds, strict=True)],
        [max(0.0, high - rate) for rate, (_, high) in zip(y, bounds, strict=True)],
    ]
    axes.errorbar(x, y, yerr=reach, fmt=style, color=color, markersize=5, label=label)


def _as_shares(axes: "Axes") -> None:
    from matplotlib.ticker import PercentFormatter

    axes.set_ylim(-0.02, 1.04)  # a marker at 0 or 1 is drawn whole
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _bounds(course: Course) -> tuple[list[float], list[float]]:
    known = [acceptance_length_interval(point.counted) for point in course.points]
    nothing = (float("nan"), float("nan"))
    return [(bounds or nothing)[0] for bounds in known], [(bounds or nothing)[1] for bounds in known]


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
