"""The live view: draft acceptance since the watch began, the last stretch beside it, its course, what is found."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.recording import Recording, TrendPoint
from dspark_cli.findings.finding import Finding
from dspark_cli.profiling.acceptance_report import AcceptanceReport
from dspark_cli.report.acceptance import WIDEST_CHART, bar
from dspark_cli.report.acceptance_words import clock, finding_title, headline, length_interval, percent, percents
from dspark_cli.report.charts import course_of, terminal_chart
from dspark_cli.report.console import result_console
from dspark_cli.report.findings import COLORS

NARROWEST_TABLE, NARROWEST_CHART = 40, 40
SHORTEST_CHART, TALLEST_CHART = 7, 16
MOST_FINDINGS = 6
BAR_COLUMNS = 52
"""Columns that a row of positions takes beside its bar."""


class WatchView:
    """Shows each report that it is given, and keeps nothing but that: a screen on a terminal, a line elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or result_console()
        on_screen = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop") if on_screen else None

    def __enter__(self) -> "WatchView":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def update(self, report: AcceptanceReport) -> None:
        if self._live:
            size = self._console.size
            self._live.update(watch_screen(report, size.width, size.height - 1), refresh=True)
        else:
            self._console.print(Text(watch_line(report)), soft_wrap=True)


def watch_line(report: AcceptanceReport) -> str:
    """The last stretch as one line."""
    last = _last(report.recording)
    at = clock(last.at if last else None) or datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    profile = _profile(last) if last else report.profile
    hits = last.traffic.prefix_hit_rate if last else report.prefix_hit_rate
    if profile is None:
        return f"{at}  no draft step{_hits(hits)}"
    first = f", position 0 {percent(profile.positions[0].rate)}" if profile.positions else ""
    interval = "" if profile.length_low is None else f" ({length_interval(profile)})"
    length = f"{profile.mean_acceptance_length:.2f}{interval}"
    return f"{at}  {profile.drafts:,} drafts, length {length}{first}{_hits(hits)}"


def watch_screen(report: AcceptanceReport, width: int, height: int) -> RenderableType:
    """`height` lines of `width` columns (from 4 up, and at most); the chart takes what the figures leave."""
    last = _last(report.recording)
    recent = _profile(last) if last else None
    found = list(_findings(report.findings, max(0, min(MOST_FINDINGS, height // 4))))
    lines: list[RenderableType] = [_line(headline(report), style="bold")]
    lines += [_line(sentence) for sentence in _sentences(report, last, recent)]
    rows = height - len(lines) - len(found)
    shown, taken = _positions(report.profile, recent, width, rows)
    lines += shown
    chart = _chart(report.recording, width, rows - taken)
    return Group(*lines, *chart, *found)


def _sentences(report: AcceptanceReport, last: TrendPoint | None, recent: AcceptanceProfile | None) -> Iterator[str]:
    yield f"in all: {_sentence(report.profile)}{_hits(report.prefix_hit_rate)}"
    if last is not None:
        over = f"last {last.seconds:.0f} s" if last.seconds is not None else "last stretch"
        yield f"{over}: {_sentence(recent)}{_hits(last.traffic.prefix_hit_rate)}"


def _sentence(profile: AcceptanceProfile | None) -> str:
    if profile is None:
        return "no draft step"
    interval = "" if profile.length_low is None else f" ({length_interval(profile)})"
    return f"{profile.drafts:,} drafts, length {profile.mean_acceptance_length:.2f}{interval}"


def _positions(
    now: AcceptanceProfile | None, recent: AcceptanceProfile | None, width: int, rows: int
) -> tuple[list[RenderableType], int]:
    """The table, and how many lines it takes; positions that have no room are counted in its last line."""
    if now is None or not now.positions or rows < 2 or width < NARROWEST_TABLE:
        return [], 0
    bar_width = min(30, width - BAR_COLUMNS)
    fitting = len(now.positions) if len(now.positions) < rows else max(1, rows - 2)
    rates = {at.position: percent(at.rate) for at in recent.positions} if recent else {}
    table = Table(box=None, pad_edge=False)
    for heading in ("position", "rate", "95% interval", "last"):
        table.add_column(heading, justify="right", no_wrap=True)
    if bar_width >= 8:
        table.add_column("", width=bar_width)
    for at in now.positions[:fitting]:
        cells = [str(at.position), percent(at.rate), percents(at.rate_low, at.rate_high), rates.get(at.position, "-")]
        table.add_row(*cells, *([bar(at)] if bar_width >= 8 else []))
    left_out = len(now.positions) - fitting
    more: list[RenderableType] = [_line(f"and {left_out} more positions")] if left_out and rows > fitting + 1 else []
    return [table, *more], 1 + fitting + len(more)


def _chart(recording: Recording, width: int, rows: int) -> list[RenderableType]:
    height = min(rows - 1, TALLEST_CHART)
    if height < SHORTEST_CHART or width < NARROWEST_CHART:
        return []
    wide = min(width, WIDEST_CHART)
    course = course_of(recording.trend, at_most=wide)
    with_hits = any(rate is not None for rate in course.hit_rates)
    chart = terminal_chart(course, wide, height, with_hit_rate=with_hits)
    hits = " (left), prefix hit rate in % (right, o)" if with_hits else ""
    return [] if chart is None else [_line(f"mean acceptance length{hits}, in {course.unit}"), chart]


def _findings(findings: Sequence[Finding], at_most: int) -> Iterator[RenderableType]:
    shown = findings if len(findings) <= at_most else findings[: max(0, at_most - 1)]
    for finding in shown:
        yield _line(f"{finding.severity}: {finding_title(finding)}", style=COLORS[finding.severity])
    if len(findings) > len(shown) and at_most > 0:
        yield _line(f"and {len(findings) - len(shown)} more findings")


def _line(words: str, style: str = "") -> Text:
    """One line, cut where the screen ends: a line that wraps would push the others out."""
    return Text(words, style=style, no_wrap=True, overflow="ellipsis")


def _last(recording: Recording) -> TrendPoint | None:
    return recording.trend[-1] if recording.trend else None


def _profile(point: TrendPoint) -> AcceptanceProfile | None:
    return AcceptanceProfile.of(point.counted) if point.counted.drafts > 0 else None


def _hits(rate: float | None) -> str:
    return "" if rate is None else f", prefix hits {percent(rate)}"
