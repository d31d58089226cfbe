"""What every figure of a page is drawn with: inline SVG in the page's colors, without JavaScript and without a network.
The same figure gives the same bytes."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, LINE, FIRST, SECOND, THIRD = "#010101", "#020202", "#030303", "#040404", "#050505"
PAGE_COLORS = {
    INK: "currentColor",
    LINE: "var(--line)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
}
"""What is drawn with, and what the page's style, light or dark, makes of it."""
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "dspark-tool",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    "font.size": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "errorbar.capsize": 3,
}
NOT_PUT_BACK = ("backend", "backend_fallback")
"""Settings that rc_context leaves changed; no figure here depends on them."""
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def page_settings() -> AbstractContextManager[None]:
    """The settings of this page alone: those of the user's matplotlibrc could ask for LaTeX, or for other bytes."""
    import matplotlib

    default: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    settings: Any = {**{name: default[name] for name in default if name not in NOT_PUT_BACK}, **SETTINGS}
    return matplotlib.rc_context(settings)


def page_figure(rows: int, height: float) -> "tuple[Figure, Sequence[Axes]]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False, height_ratios=[2, 1][:rows])
    return figure, [row[0] for row in axes]


def inline_svg(figure: "Figure", name: str, label: str) -> str:
    """The figure as an <svg> element whose ids begin with `name`, so that two of them share a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    for drawn, shown in PAGE_COLORS.items():
        svg = svg.replace(drawn, shown)
    for mark in ('id="', "url(#", 'href="#'):
        svg = svg.replace(mark, f"{mark}{name}-")
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
