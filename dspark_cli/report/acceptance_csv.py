"""The report on draft acceptance as CSV: a row a position, and a row of totals, for every scope."""

import csv
import io
import unicodedata
from collections.abc import Iterator

from dspark_cli.facts.acceptance import AcceptanceProfile, PositionAcceptance
from dspark_cli.profiling.acceptance_report import AcceptanceReport
from dspark_cli.report.console import printable

COLUMNS = (
    "scope",
    "source",
    "where",
    "model",
    "engine",
    "seconds",
    "position",
    "drafts",
    "draft_tokens",
    "accepted",
    "rate",
    "rate_low",
    "rate_high",
    "conditional_rate",
    "conditional_low",
    "conditional_high",
    "mean_acceptance_length",
    "length_low",
    "length_high",
    "draft_acceptance_rate",
    "prefix_hit_rate",
    "external_hit_rate",
    "preemptions",
)
FORMULA_STARTS = tuple("=+-@")
Cell = str | int | float | None
Row = dict[str, Cell]


def acceptance_csv(report: AcceptanceReport) -> str:
    """The report as CSV text, with a header and with lines that end in \\n.

    `scope` is `all` (all engines together, over the span), `since_start` or `replica`; the row of `position` `all` has
    the scope's totals, the others one position each. Rates are shares from 0 to 1; an empty cell is not known.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in _rows(report):
        writer.writerow({column: _cell(value) for column, value in row.items()})
    return text.getvalue()


def _rows(report: AcceptanceReport) -> Iterator[Row]:
    recording = report.recording
    counts = recording.counted
    everywhere: Row = {
        "source": str(recording.source),
        "where": "; ".join(recording.where),
        "model": report.model,
        "engine": recording.parts[0].engine if len(recording.parts) == 1 else "all",
    }
    known: Row = {
        "drafts": counts.drafts,
        "draft_tokens": counts.draft_tokens,
        "accepted": counts.accepted,
        "prefix_hit_rate": report.prefix_hit_rate,
        "external_hit_rate": report.external_hit_rate,
        "preemptions": report.preemptions,
    }
    yield from _scope({"scope": "all", **everywhere, "seconds": recording.seconds}, known, report.profile)
    if report.since_start is not None:
        yield from _scope({"scope": "since_start", **everywhere}, {}, report.since_start)
    for replica in report.replicas:
        place: Row = {"where": replica.where, "model": replica.model, "engine": replica.engine}
        known = {"drafts": 0, "prefix_hit_rate": replica.prefix_hit_rate}
        yield from _scope(
            {"scope": "replica", "source": str(recording.source), **place, "seconds": recording.seconds},
            known,
            replica.profile,
        )


def _scope(place: Row, known: Row, profile: AcceptanceProfile | None) -> Iterator[Row]:
    """`known` goes to the row of totals, also where no draft step was counted."""
    if profile is None:
        yield {**place, "position": "all", **known}
        return
    yield {**place, "position": "all", **known, **_totals(profile)}
    for at in profile.positions:
        yield {**place, **_position(profile, at)}


def _totals(profile: AcceptanceProfile) -> Row:
    return {
        "drafts": profile.drafts,
        "draft_tokens": profile.draft_tokens,
        "accepted": profile.accepted,
        "mean_acceptance_length": profile.mean_acceptance_length,
        "length_low": profile.length_low,
        "length_high": profile.length_high,
        "draft_acceptance_rate": profile.draft_acceptance_rate,
    }


def _position(profile: AcceptanceProfile, at: PositionAcceptance) -> Row:
    return {
        "position": at.position,
        "drafts": profile.drafts,
        "draft_tokens": profile.draft_tokens,
        "accepted": at.accepted,
        "rate": at.rate,
        "rate_low": at.rate_low,
        "rate_high": at.rate_high,
        "conditional_rate": at.conditional_rate,
        "conditional_low": at.conditional_low,
        "conditional_high": at.conditional_high,
    }


def _cell(value: Cell) -> Cell:
    if isinstance(value, float):
        return round(value, 6)
    return inert(value) if isinstance(value, str) else value


def inert(text: str) -> str:
    """Text that no spreadsheet runs: where it would begin a formula, a leading ' makes it text.

    That is OWASP's advice against CSV injection: spreadsheets take a cell for a formula by its first character, and a
    model's name comes from outside. Control characters (a tab would begin one too) are replaced before, so that a row
    stays a line; the full-width forms of these signs, which some spreadsheets take for them, count as well.
    """
    line = printable(text)
    begin = unicodedata.normalize("NFKC", line.lstrip()[:1])
    return f"'{line}" if begin.startswith(FORMULA_STARTS) else line
