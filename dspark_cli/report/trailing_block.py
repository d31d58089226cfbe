"""Two servers beside each other: what keeping the trailing block of prefix hits is worth."""

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from dspark_cli.probing.trailing_block import Side, TrailingBlockReport
from dspark_cli.report.console import printable, result_console, show_note


def show_trailing_block(report: TrailingBlockReport) -> None:
    console = result_console()
    for letter, side in (("A", report.a), ("B", report.b)):
        block = f", block {side.block_tokens:,}" if side.block_tokens else ""
        console.print(Text(printable(f"{letter}  {side.url}{block}")))
    console.print(_table(report))
    console.print(Text(_drafts(report)))
    for note in report.notes:
        show_note(note)


def _table(report: TrailingBlockReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("a request", "A", "B", "B - A"):
        table.add_column(heading, justify="left" if heading == "a request" else "right", no_wrap=True)
    for name, of, form in _ROWS:
        a, b = of(report.a), of(report.b)
        change = "-" if a is None or b is None else f"{b - a:+,.{form}f}"
        table.add_row(name, _figure(a, form), _figure(b, form), change)
    return table


def _drafts(report: TrailingBlockReport) -> str:
    found = report.acceptance
    if found is None or found.kept_low is None:
        return "drafts: nothing that can be compared"
    said = {True: "B drafts worse", False: "no harm to the drafts", None: "too close to say"}[report.worse]
    return (
        f"drafts: length {found.cold_length:.2f} on A, {found.length:.2f} on B; B keeps {found.kept_low:.0%} to "
        f"{found.kept_high:.0%} of the accepted tokens: {said}"
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


_ROWS: tuple[tuple[str, Callable[[Side], float | None], int], ...] = (
    ("prompt tokens", lambda side: side.first_tokens.prompt_tokens, 0),
    ("cached tokens", lambda side: side.cached_tokens, 0),
    ("computed tokens", lambda side: side.computed_tokens, 0),
    ("TTFT mean, ms", lambda side: _milliseconds(side.first_tokens.ttft_mean_s), 1),
    ("TTFT p50, ms", lambda side: _milliseconds(side.first_tokens.ttft_p50_s), 1),
    ("TTFT p90, ms", lambda side: _milliseconds(side.first_tokens.ttft_p90_s), 1),
    ("TTFT p99, ms", lambda side: _milliseconds(side.first_tokens.ttft_p99_s), 1),
    ("requests a second", lambda side: side.first_tokens.requests_per_s, 2),
    ("acceptance length", lambda side: side.drafts.acceptance_length, 2),
)


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
