"""The report on a tune as one HTML page."""

from collections.abc import Iterator, Sequence

from dspark_cli import __version__
from dspark_cli.facts.tuning import Percentiles, TunedRow, TuningReport
from dspark_cli.report.page_parts import details, escaped, figure, findings_part, heading, page, table
from dspark_cli.report.tuning_chart import tuning_figure
from dspark_cli.report.tuning_words import (
    about,
    candidate_words,
    goodput_name,
    headline,
    interval,
    load_words,
    predicted,
    prediction_sentence,
    schedule_text,
    signed,
)
from dspark_cli.report.tuning_words import figure as number

TIMES = ("TPOT p50", "p90", "p99", "TTFT p50", "p90", "p99")


def tuning_page(report: TuningReport) -> str:
    """The page as HTML text. The same report gives the same bytes; everything from outside is escaped."""
    return page(
        title=headline(report),
        about=about(report),
        body=_sections(report),
        footer=f"Made by dspark-tool {__version__}. Intervals are of the differences between requests.",
    )


def _sections(report: TuningReport) -> Iterator[str]:
    yield from _winner(report)
    for concurrency in report.concurrencies:
        rows = [row for row in report.rows if row.concurrency == concurrency]
        if rows:
            yield from _load(report, concurrency, rows)
    if sentence := prediction_sentence(report):
        yield f"<p>{escaped(sentence)}</p>"
    yield from findings_part(report.findings, report.not_checked)
    yield from _positions(report)


def _winner(report: TuningReport) -> Iterator[str]:
    if report.interrupted or report.stopped:
        yield f"<p>Not finished: {escaped(report.stopped or 'interrupted')}.</p>"
    if not report.best:
        return
    rows = [
        [
            str(best.concurrency),
            str(best.tokens) if best.tokens else "no speculation",
            number(best.goodput),
            number(best.goodput_without_speculation),
            "yes" if best.certain else "no",
        ]
        for best in report.best
    ]
    yield heading("Best number of draft tokens")
    yield table(["requests at a time", "tokens", report.bound.unit, "without speculation", "certain"], rows)
    if text := schedule_text(report):
        yield f"<p>num_speculative_tokens_per_batch_size: {escaped(text)}</p>"
    yield f"<pre>{escaped(report.serve or '')}\n{escaped(report.recommend)}</pre>"


def _load(report: TuningReport, concurrency: int, rows: Sequence[TunedRow]) -> Iterator[str]:
    yield heading(load_words(report, concurrency))
    if sum(row.measured for row in rows) > 1:
        shown = [row for row in rows if row.candidate.also in (None, report.best_also)]
        name = goodput_name(report.bound)
        yield figure(tuning_figure(shown, f"load{concurrency}", name), "Bars are 95% intervals over requests.")
    headings = ["tokens", goodput_name(report.bound), "95% interval", "predicted", "error", "length", "step ms", *TIMES]
    yield table(headings, [_row(row) for row in rows])


def _row(row: TunedRow) -> list[str]:
    length = "-" if row.acceptance_length is None else f"{row.acceptance_length:.2f}"
    return [
        candidate_words(row.candidate),
        number(row.goodput),
        interval(row),
        predicted(row),
        signed(row.prediction_error),
        length,
        number(row.step_ms),
        *_percentiles(row.tpot_ms),
        *_percentiles(row.ttft_ms),
    ]


def _percentiles(values: Percentiles | None) -> list[str]:
    return ["-"] * 3 if values is None else [number(values.p50), number(values.p90), number(values.p99)]


def _positions(report: TuningReport) -> Iterator[str]:
    parts = []
    for concurrency in report.concurrencies:
        shown = [row for row in report.rows if row.concurrency == concurrency and row.rates]
        if shown:
            most = max(len(row.rates) for row in shown)
            rows = [
                [candidate_words(row.candidate), f"{row.draft_steps:,}", *(f"{rate:.1%}" for rate in row.rates)]
                + [""] * (most - len(row.rates))
                for row in shown
            ]
            caption = load_words(report, concurrency)
            parts.append(table(["tokens", "draft steps", *map(str, range(most))], rows, caption=caption))
    if parts:
        yield details("Acceptance by position", "".join(parts))
