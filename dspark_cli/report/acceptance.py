"""The report on draft acceptance for a terminal: a row and a bar a position, totals, replicas, the course over time."""

from collections.abc import Iterable, Sequence

from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.acceptance import AcceptanceProfile, PositionAcceptance
from dspark_cli.facts.recording import Recording
from dspark_cli.profiling.acceptance_report import AcceptanceReport, ReplicaAcceptance
from dspark_cli.report.acceptance_words import (
    Total,
    clock,
    headline,
    length_interval,
    measured_from,
    notes,
    percent,
    percents,
    price,
    short,
    span,
    totals,
)
from dspark_cli.report.charts import course_of, terminal_chart
from dspark_cli.report.console import result_console, show_note
from dspark_cli.report.draft_context import ROWS_DO_NOT_COMPARE, context_lines, restored_table
from dspark_cli.report.findings import show_findings

WIDTH_WITH_BAR = 78
WIDTH_WITH_CHART = 60
WIDEST_CHART = 100
CHART_HEIGHT = 10
BAR_WIDTHS = range(8, 21)
GIVEN_PREVIOUS, SINCE_START = "given previous", "since\nstart"
DROPPED_FIRST = (GIVEN_PREVIOUS, "given\nprevious", SINCE_START, "95% interval", "accepted")


def show_acceptance(report: AcceptanceReport) -> None:
    console = result_console()
    console.print(Text(headline(report)))
    console.print(Text(measured_from(report.recording), style="bright_black"))
    console.print()
    _show_profile(console, report)
    known = list(totals(report))
    if known:
        console.print()
        console.print(totals_table(known))
    for sentence in price(report):
        console.print(Text(sentence))
    if report.replicas:
        console.print()
        console.print(replicas_table(report.replicas, with_intervals=console.width >= WIDTH_WITH_BAR))
    _show_restored(console, report)
    _show_trend(console, report.recording)
    for note in notes(report.recording):
        show_note(note)
    show_findings(console, report.findings, report.not_checked)


def positions_table(width: int, now: AcceptanceProfile, since_start: AcceptanceProfile | None) -> Table:
    """A row a position, in `width` columns: what has no room is left out, for a figure cut short is a wrong one."""
    columns = _columns(now, since_start)
    for heading in DROPPED_FIRST:
        if _width(columns) > width:
            columns.pop(heading, None)
    room = width - _width(columns) - 2
    last = columns.pop(SINCE_START, None)
    table = Table(box=None, pad_edge=False)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    cells: list[Sequence[RenderableType]] = list(columns.values())
    if width >= WIDTH_WITH_BAR and room >= BAR_WIDTHS.start:
        table.add_column("", width=min(room, BAR_WIDTHS.stop - 1))
        cells.append([bar(at) for at in now.positions])
    if last is not None:
        table.add_column(SINCE_START, justify="right", no_wrap=True)
        cells.append(last)
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return table


def bar(at: PositionAcceptance) -> Bar:
    return Bar(size=1.0, begin=0, end=min(at.rate, 1.0), color="green")


def totals_table(known: Iterable[Total]) -> Table:
    known = list(known)
    beside = any(total.since_start for total in known)
    table = Table(box=None, pad_edge=False, show_header=beside)
    table.add_column("")
    table.add_column("in the window", justify="right", no_wrap=True)
    if beside:
        table.add_column("since start", justify="right", no_wrap=True)
    for total in known:
        table.add_row(total.name, total.value, *([total.since_start] if beside else []))
    return table


def replicas_table(replicas: Sequence[ReplicaAcceptance], with_intervals: bool = True) -> Table:
    several_models = len({replica.model for replica in replicas}) > 1
    table = Table(box=None, pad_edge=False)
    table.add_column("where", overflow="fold", ratio=1)
    if several_models:
        table.add_column("model", overflow="fold", ratio=1)
    table.add_column("engine", overflow="fold", min_width=6, max_width=12)
    columns = [_replica_figures(replica) for replica in replicas]
    shown = [name for name in columns[0] if with_intervals or name != "95% interval"] if columns else []
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for replica, figures in zip(replicas, columns, strict=True):
        where = short(replica.where.split("://", 1)[-1])
        names = [where, *([short(replica.model)] if several_models else []), short(replica.engine, 24)]
        table.add_row(*(Text(name) for name in names), *(figures[name] for name in shown))
    return table


def _replica_figures(replica: ReplicaAcceptance) -> dict[str, str]:
    profile = replica.profile
    return {
        "draft\nsteps": f"{profile.drafts:,}" if profile else "0",
        "length": f"{profile.mean_acceptance_length:.2f}" if profile else "-",
        "95% interval": length_interval(profile),
        "position 0\nrate": percent(profile.positions[0].rate if profile and profile.positions else None),
        "prefix\nhits": percent(replica.prefix_hit_rate),
    }


def _show_profile(console: Console, report: AcceptanceReport) -> None:
    if report.profile is None:
        console.print(Text(f"no draft step was counted {span(report.recording)}"))
        if report.since_start is not None:
            console.print(Text(f"\nsince server start ({report.since_start.drafts:,} draft steps):"))
    shown = report.profile or report.since_start
    if shown is None:
        return
    if not shown.positions:
        console.print(Text("the source tells totals only, not positions"))
        return
    beside = report.since_start if report.profile is not None else None
    console.print(positions_table(console.width, shown, beside))


def _show_restored(console: Console, report: AcceptanceReport) -> None:
    if report.by_restored:
        console.print(Text("\nby tokens restored at the request's latest admission"))
        console.print(restored_table(report.by_restored))
        if len(report.by_restored) > 1:
            console.print(Text(ROWS_DO_NOT_COMPARE))
    lines = list(context_lines(report.recording.draft_contexts))
    if lines:
        console.print(Text("\n" + "\n".join(lines)))


def _columns(now: AcceptanceProfile, since_start: AcceptanceProfile | None) -> dict[str, list[str]]:
    """Cells by heading."""
    columns = {
        "position": [str(at.position) for at in now.positions],
        "accepted": [f"{at.accepted:,}" for at in now.positions],
        "rate": [percent(at.rate) for at in now.positions],
        "95% interval": [percents(at.rate_low, at.rate_high) for at in now.positions],
        GIVEN_PREVIOUS: [percent(at.conditional_rate) for at in now.positions],
    }
    if since_start is None:
        return columns
    rates = {at.position: percent(at.rate) for at in since_start.positions}
    columns["given\nprevious"] = columns.pop(GIVEN_PREVIOUS)  # in two lines, so that the bar has room at 80 columns
    return {**columns, SINCE_START: [rates.get(at.position, "-") for at in now.positions]}


def _width(columns: dict[str, list[str]]) -> int:
    lines = [[*heading.split("\n"), *cells] for heading, cells in columns.items()]
    return sum(max(map(len, column)) for column in lines) + 2 * (len(lines) - 1)


def _show_trend(console: Console, recording: Recording) -> None:
    if console.width < WIDTH_WITH_CHART:
        return
    width = min(console.width, WIDEST_CHART)
    course = course_of(recording.trend, at_most=width)
    chart = terminal_chart(course, width, CHART_HEIGHT)
    if chart is not None:
        began = clock(course.began)
        console.print(Text(f"\nmean acceptance length over time, in {course.unit}{f' from {began}' if began else ''}"))
        console.print(chart)
