"""Goodput over the number of draft tokens: what was predicted, and what was measured."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from dspark_cli.facts.tuning import TunedRow
from dspark_cli.report.figure_parts import FIRST, SECOND, THIRD, inline_svg, page_figure, page_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_POINTS = 2
MEASURED = "\N{BLACK CIRCLE}"


def tuning_chart(rows: Sequence[TunedRow], width: int, height: int) -> Text | None:
    """A line through the predictions, dots for what was measured; 0 is no speculation. None where there is too little
    to draw, or nothing met the bound, or where plotext's compiled part does not load on this machine."""
    try:
        import plotext
    except ImportError:
        return None
    foreseen = [(row.candidate.tokens, row.predicted) for row in rows if row.predicted is not None]
    measured = [(row.candidate.tokens, row.goodput) for row in rows if row.goodput is not None]
    if len(measured) < FEWEST_POINTS or not any(goodput for _, goodput in measured):
        return None
    plotext.terminal.limit(False, False)  # the console's width counts, not that of the terminal plotext asks
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    if len(foreseen) > 1:
        figure.draw(figure.signal(*_columns(foreseen), marker="braille").lines(True))
    figure.draw(figure.signal(*_columns(measured), marker=MEASURED))
    figure.ruler("x").ticks(sorted({row.candidate.tokens for row in rows}))
    chart = Text(str(figure.build().string(colorless=True)).rstrip("\n"), no_wrap=True)
    chart.highlight_regex("[\N{BRAILLE PATTERN BLANK}-\N{BRAILLE PATTERN DOTS-12345678}]+", "cyan")
    chart.highlight_regex(MEASURED, "green")
    return chart


def tuning_figure(rows: Sequence[TunedRow], name: str, goodput: str) -> str:
    """The same for a page, with intervals; `name` tells it from other figures on the page."""
    from matplotlib.ticker import MaxNLocator

    with page_settings():
        figure, (axes,) = page_figure(rows=1, height=3.4)
        _draw(axes, rows)
        axes.set_xlabel("draft tokens (0: no speculation)")
        axes.set_ylabel(goodput)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return inline_svg(figure, name, f"{goodput} over the number of draft tokens, predicted and measured")


def _draw(axes: "Axes", rows: Sequence[TunedRow]) -> None:
    foreseen = [(row.candidate.tokens, row.predicted) for row in rows if row.predicted is not None]
    if foreseen:
        axes.plot(*_columns(foreseen), "--", color=SECOND, label="predicted")
    for used, color, label in ((False, FIRST, "measured"), (True, THIRD, "measured, used to predict")):
        shown = [row for row in rows if row.goodput is not None and row.used_to_predict is used]
        if not shown:
            continue
        good = [row.goodput or 0.0 for row in shown]
        low = [max(0.0, each - (row.goodput_low or each)) for each, row in zip(good, shown, strict=True)]
        high = [max(0.0, (row.goodput_high or each) - each) for each, row in zip(good, shown, strict=True)]
        tokens = [row.candidate.tokens for row in shown]
        axes.errorbar(tokens, good, yerr=[low, high], fmt="o", color=color, markersize=5, label=label)


def _columns(points: Sequence[tuple[int, float | None]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y or 0.0 for _, y in points]
