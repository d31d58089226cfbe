"""The report on a tune for a terminal: a table and a chart a load, acceptance by position, findings, what to type."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.tuning import Percentiles, TunedRow, TuningReport
from dspark_cli.report.console import printable, result_console, show_note
from dspark_cli.report.findings import show_findings
from dspark_cli.report.tuning_chart import tuning_chart
from dspark_cli.report.tuning_words import (
    about,
    candidate_words,
    figure,
    goodput_name,
    headline,
    interval,
    load_words,
    predicted,
    prediction_sentence,
    schedule_text,
    signed,
)

WIDE = 78
WIDTH_WITH_CHART = 60
WIDEST_CHART = 76
CHART_HEIGHT = 10
MOST_COLUMNS = 9


def show_tuning(report: TuningReport) -> None:
    console = result_console()
    console.print(Text(headline(report)))
    console.print(Text(about(report), style="bright_black"))
    for concurrency in report.concurrencies:
        rows = [row for row in report.rows if row.concurrency == concurrency]
        if rows:
            _show_load(console, report, concurrency, rows)
    _show_positions(console, report)
    if sentence := prediction_sentence(report):
        console.print(Text(f"\n{sentence}"))
    show_findings(console, report.findings, report.not_checked)
    _show_winner(console, report)
    for note in _notes(report):
        show_note(note)


def _show_load(console: Console, report: TuningReport, concurrency: int, rows: Sequence[TunedRow]) -> None:
    console.print(Text(f"\n{load_words(report, concurrency)} (times: ms)"))
    console.print(_table(report, rows, wide=console.width >= WIDE))
    width = min(WIDEST_CHART, console.width)
    if width >= WIDTH_WITH_CHART and (chart := tuning_chart(_one_setting(report, rows), width, CHART_HEIGHT)):
        console.print(Text(f"\n{goodput_name(report.bound)} by draft tokens (0: none); dots measured, line predicted"))
        console.print(chart)


def _one_setting(report: TuningReport, rows: Sequence[TunedRow]) -> list[TunedRow]:
    """A chart is of one value of the one more setting, the best."""
    return [row for row in rows if row.candidate.also in (None, report.best_also)]


def _table(report: TuningReport, rows: Sequence[TunedRow], wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, 1))
    times = ("TPOT\np50", "\np99", "TTFT\np50", "\np99") if wide else ("TPOT\np50",)
    within = ("within\nbound",) if report.bound.given else ()
    headings = ("\ntokens", f"\n{goodput_name(report.bound)}", "95%\ninterval", "pre-\ndicted", "\nerror")
    for heading in (*headings, *within, "\nlength", "step", *times):
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    best = max((row.goodput or 0.0 for row in rows), default=0.0)
    for row in rows:
        table.add_row(
            candidate_words(row.candidate),
            figure(row.goodput),
            interval(row),
            predicted(row),
            signed(row.prediction_error),
            *(["-" if row.within_bound is None else f"{row.within_bound:.0%}"] if within else []),
            "-" if row.acceptance_length is None else f"{row.acceptance_length:.2f}",
            figure(row.step_ms),
            *_times(row.tpot_ms, row.ttft_ms, wide),
            style="bold" if row.measured and best and row.goodput == best else "" if row.measured else "bright_black",
        )
    return table


def _times(tpot: Percentiles | None, ttft: Percentiles | None, wide: bool) -> list[str]:
    if tpot is None or ttft is None:
        return ["-"] * (4 if wide else 1)
    of_tokens = [figure(tpot.p50)]
    return [*of_tokens, figure(tpot.p99), figure(ttft.p50), figure(ttft.p99)] if wide else of_tokens


def _show_positions(console: Console, report: TuningReport) -> None:
    """Of the smallest load, a column a measured number of tokens; --json has the others."""
    shown = [
        row for row in _one_setting(report, report.rows) if row.rates and row.concurrency == report.concurrencies[0]
    ]
    shown = shown[-MOST_COLUMNS:]
    if not shown:
        return
    console.print(Text("\nAcceptance by position (rows) and number of draft tokens (columns), at the smallest load"))
    table = Table(box=None, pad_edge=False)
    for heading in ("", *(candidate_words(row.candidate) for row in shown)):
        table.add_column(heading, justify="right")
    for position in range(max(len(row.rates) for row in shown)):
        rates = [f"{row.rates[position]:.1%}" if position < len(row.rates) else "" for row in shown]
        table.add_row(str(position), *rates)
    console.print(table)


def _show_winner(console: Console, report: TuningReport) -> None:
    if not report.best:
        return
    console.print()
    so_far = " so far" if report.interrupted or report.stopped else ""
    for best in report.best:
        tokens = f"{best.tokens} draft token{'s' * (best.tokens != 1)}" if best.tokens else "no speculation"
        sure = "" if best.certain else " (not certain)"
        gives = f"{figure(best.goodput)} {report.bound.unit}"
        console.print(Text(f"best{so_far} at {best.concurrency} at a time: {tokens}, {gives}{sure}"))
    if text := schedule_text(report):
        console.print(Text(f"num_speculative_tokens_per_batch_size: {text}"), soft_wrap=True)
    if report.serve:
        console.print(Text.assemble(("\nserve: ", "bold"), printable(report.serve)), soft_wrap=True)
    console.print(Text.assemble(("recommend: ", "bold"), printable(report.recommend)), soft_wrap=True)


def _notes(report: TuningReport) -> list[str]:
    kept = f"what was measured is in {report.results}; the same command goes on from there"
    if report.interrupted:
        return [f"interrupted: {kept}"]
    return [f"stopped: {report.stopped}; {kept}"] if report.stopped else []
