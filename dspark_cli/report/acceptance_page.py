"""The report on draft acceptance as one HTML page: no script, no network, nothing beside it, fit for a bug report."""

from collections.abc import Iterator, Sequence
from operator import add

from dspark_cli import __version__
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.recording import EnginePart, Recording
from dspark_cli.facts.trend import MOST_POINTS
from dspark_cli.profiling.acceptance_report import AcceptanceReport, ReplicaAcceptance
from dspark_cli.report.acceptance_figures import profile_figure, trend_figure
from dspark_cli.report.acceptance_summary import markdown_summary, recorded_at
from dspark_cli.report.acceptance_words import (
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
from dspark_cli.report.charts import course_of
from dspark_cli.report.draft_context import HEADINGS, context_lines, restored_rows
from dspark_cli.report.page_parts import (
    Row,
    details,
    escaped,
    escaped_lines,
    figure,
    findings_part,
    heading,
    page,
    table,
)

ENGINE = ("where", "model", "engine")
TRAFFIC = {
    "prompt_tokens": "prompt tokens",
    "generation_tokens": "generated tokens",
    "prefix_queries": "prefix queries",
    "prefix_hits": "prefix hits",
    "external_queries": "external queries",
    "external_hits": "external hits",
    "preemptions": "preempted",
    "finished_requests": "finished requests",
}


def acceptance_page(report: AcceptanceReport) -> str:
    """The page as HTML text. The same report gives the same bytes; everything from outside is escaped."""
    return page(
        title=headline(report),
        about=", ".join(filter(None, (measured_from(report.recording), recorded_at(report.recording)))),
        body=_sections(report),
        footer=f"Made by dspark-tool {__version__}. Intervals take draft steps as independent.",
    )


def _sections(report: AcceptanceReport) -> Iterator[str]:
    recording = report.recording
    yield from _notes(recording)
    yield from _profile(report)
    yield from _trend(recording)
    if report.replicas:
        yield heading("Engines")
        yield _replicas(report.replicas)
    yield from _restored(report)
    yield from findings_part(report.findings, report.not_checked)
    yield details("Text for a bug report", f"<pre>{escaped_lines(markdown_summary(report))}</pre>")
    yield details("Raw counters", _raw_counters(recording))


def _notes(recording: Recording) -> Iterator[str]:
    said = [f"<li>{escaped(note)}</li>" for note in notes(recording)]
    if said:
        yield f"<ul>{''.join(said)}</ul>"


def _profile(report: AcceptanceReport) -> Iterator[str]:
    yield heading("Acceptance by position")
    if report.profile is None:
        yield f"<p>No draft step was counted {escaped(span(report.recording))}.</p>"
    shown = report.profile or report.since_start
    beside = report.since_start if report.profile is not None else None
    if shown is not None and report.profile is None:
        yield "<p>Since server start:</p>"
    if shown is not None and not shown.positions:
        yield "<p>The source tells totals only, not positions.</p>"
    elif shown is not None:
        yield figure(
            profile_figure(shown, beside),
            "Bars are 95% Wilson intervals. A position that is seldom reached has a wide one.",
        )
        yield _positions(shown, beside)
    yield heading("In all")
    yield from _totals(report)


def _positions(now: AcceptanceProfile, since_start: AcceptanceProfile | None) -> str:
    headings = ["position", "accepted", "rate", "95% interval", "given previous", "95% interval"]
    before = {at.position: percent(at.rate) for at in since_start.positions} if since_start else {}
    rows = [
        [
            str(at.position),
            f"{at.accepted:,}",
            percent(at.rate),
            percents(at.rate_low, at.rate_high),
            percent(at.conditional_rate),
            percents(at.conditional_low, at.conditional_high),
            *([before.get(at.position, "-")] if since_start else []),
        ]
        for at in now.positions
    ]
    return table([*headings, *(["rate since start"] if since_start else [])], rows)


def _totals(report: AcceptanceReport) -> Iterator[str]:
    known = list(totals(report))
    beside = any(total.since_start for total in known)
    rows = [[total.name, total.value, *([total.since_start] if beside else [])] for total in known]
    yield table(["", "in the window", "since start"] if beside else ["", ""], rows, text_columns=1)
    for sentence in price(report):
        yield f"<p>{escaped(sentence)}.</p>"


def _trend(recording: Recording) -> Iterator[str]:
    course = course_of(recording.trend, MOST_POINTS)
    if course.can_be_drawn:
        yield heading("Over time")
        caption = f"{len(recording.trend):,} stretches"
        drawn = len(course.points)
        caption += f", drawn as {drawn:,}" if drawn < len(recording.trend) else ""
        yield figure(trend_figure(course), f"{caption}. The band is the 95% interval of the mean acceptance length.")


def _replicas(replicas: Sequence[ReplicaAcceptance]) -> str:
    headings = [*ENGINE, "draft steps", "length", "95% interval", "position 0", "prefix hits"]
    return table(headings, [_replica(replica) for replica in replicas], text_columns=3)


def _replica(replica: ReplicaAcceptance) -> Row:
    names = [short(replica.where), short(replica.model), short(replica.engine)]
    profile, hits = replica.profile, percent(replica.prefix_hit_rate)
    if profile is None:
        return [*names, "0", "-", "-", "-", hits]
    first = percent(profile.positions[0].rate if profile.positions else None)
    length = f"{profile.mean_acceptance_length:.2f}"
    return [*names, f"{profile.drafts:,}", length, length_interval(profile), first, hits]


def _restored(report: AcceptanceReport) -> Iterator[str]:
    if not report.recording.draft_contexts:
        return
    yield heading("Restored tokens")
    if report.by_restored:
        rows = restored_rows(report.by_restored)
        yield table(HEADINGS, rows, caption="By tokens restored at the request's latest admission")
    yield from (f"<p>{escaped(line)}.</p>" for line in context_lines(report.recording.draft_contexts))


def _raw_counters(recording: Recording) -> str:
    tables = [*_counters(recording.parts, span(recording))]
    if recording.since_start:
        tables += _counters(recording.since_start, "since server start")
    return "".join(tables)


def _counters(parts: Sequence[EnginePart], when: str) -> Iterator[str]:
    names = [[short(name) for name in (part.where, part.model, part.engine)] for part in parts]
    of_drafts = ["draft steps", "draft tokens", "accepted", "accepted at position 0, 1, ..."]
    yield table([*ENGINE, *of_drafts], map(add, names, map(_draft_counters, parts)), 3, f"Drafts, {when}")
    of_traffic = [[getattr(part.traffic, name) for name in TRAFFIC] for part in parts]
    if any(count is not None for counts in of_traffic for count in counts):
        cells = [["-" if count is None else str(count) for count in counts] for counts in of_traffic]
        yield table([*ENGINE, *TRAFFIC.values()], map(add, names, cells), 3, f"Traffic, {when}")


def _draft_counters(part: EnginePart) -> list[str]:
    counted = part.counted
    at_positions = " ".join(map(str, counted.accepted_at)) or "-"
    return [str(counted.drafts), str(counted.draft_tokens), str(counted.accepted), at_positions]
