"""The report on draft acceptance as a few lines of Markdown, to paste into an issue."""

import re
from collections.abc import Iterator

from dspark_cli import __version__
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.recording import Recording
from dspark_cli.profiling.acceptance_report import AcceptanceReport
from dspark_cli.report.acceptance_words import (
    clock,
    finding_title,
    headline,
    measured_from,
    notes,
    percent,
    percents,
    price,
    short,
    totals,
)
from dspark_cli.report.draft_context import HEADINGS, ROWS_DO_NOT_COMPARE, context_lines, restored_rows

LONGEST_LINE = 500


def markdown_summary(report: AcceptanceReport) -> str:
    """Figures as Markdown tables; all that comes from outside stands in code blocks, where it can be no markup."""
    return "\n".join(_lines(report)) + "\n"


def recorded_at(recording: Recording) -> str | None:
    """The end of the recording where its trend tells it, else since when the counters count."""
    last = clock(recording.trend[-1].at) if recording.trend else None
    if last:
        return f"until {last}"
    born = [part.counted.born for part in recording.parts if part.counted.born is not None]
    began = clock(min(born)) if born else None
    return f"counters since {began}" if began else None


def _lines(report: AcceptanceReport) -> Iterator[str]:
    recording = report.recording
    about = [headline(report), measured_from(recording), recorded_at(recording), f"dspark-tool {__version__}"]
    yield from _code([line for line in about if line])
    shown = report.profile or report.since_start
    if shown is not None and shown.positions:
        beside = report.since_start if report.profile is not None else None
        yield ""
        yield from _positions(shown, beside)
    yield ""
    for total in totals(report):
        yield f"- {total.name}: {total.value}" + (f" (since start: {total.since_start})" if total.since_start else "")
    for sentence in price(report):
        yield f"- {sentence}"
    if report.by_restored:
        yield ""
        yield from _restored(report)
    contexts = context_lines(recording.draft_contexts)
    said = [*(f"note: {note}" for note in notes(recording)), *contexts, *_findings(report)]
    if said:
        yield ""
        yield from _code(said)


def _positions(now: AcceptanceProfile, since_start: AcceptanceProfile | None) -> Iterator[str]:
    before = {at.position: percent(at.rate) for at in since_start.positions} if since_start else {}
    headings = ["position", "accepted", "rate", "95% interval", "given previous"]
    headings += ["since start"] if since_start else []
    yield _row(headings)
    yield _row(["---:"] * len(headings))
    for at in now.positions:
        cells = [str(at.position), f"{at.accepted:,}", percent(at.rate), percents(at.rate_low, at.rate_high)]
        cells.append(percent(at.conditional_rate))
        yield _row([*cells, *([before.get(at.position, "-")] if since_start else [])])


def _restored(report: AcceptanceReport) -> Iterator[str]:
    yield _row(list(HEADINGS))
    yield _row(["---:"] * len(HEADINGS))
    for cells in restored_rows(report.by_restored):
        yield _row(cells)
    if len(report.by_restored) > 1:
        yield ""
        yield ROWS_DO_NOT_COMPARE


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _findings(report: AcceptanceReport) -> Iterator[str]:
    for finding in report.findings:
        yield f"{finding.severity}: {finding_title(finding)}"
        yield f"  {finding.what}"
        for name, value in finding.evidence.items():
            yield f"  {name}: {value}"
    for check in report.not_checked:
        yield f"not checked: {check.id}: {check.why}"


def _code(lines: list[str]) -> Iterator[str]:
    """A code block, its fence longer than any run of backticks inside."""
    shown = [short(line, LONGEST_LINE) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from shown
    yield fence
