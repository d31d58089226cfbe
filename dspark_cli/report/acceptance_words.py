"""What is said of a report on draft acceptance, in words: the same on a terminal, on a page and in a live view."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.recording import Recording, SourceKind, traffic_in
from dspark_cli.findings.finding import Finding
from dspark_cli.profiling.acceptance_report import AcceptanceReport
from dspark_cli.report.console import printable

LONGEST_NAME = 80
SOURCES = {
    SourceKind.METRICS: "metrics of",
    SourceKind.PROMETHEUS: "Prometheus at",
    SourceKind.LOG: "log",
    SourceKind.BENCHMARK: "benchmark result",
    SourceKind.EXAMPLE: "example",
    SourceKind.PROBE: "probe of",
}
WHOLE_SPANS = {
    SourceKind.LOG: "over the whole log",
    SourceKind.BENCHMARK: "over the whole benchmark",
    SourceKind.EXAMPLE: "over the whole example",
    SourceKind.PROBE: "over the whole probe",
}


@dataclass(frozen=True)
class Total:
    """One figure of all engines together; `since_start` is the same since server start, beside a window."""

    name: str
    value: str
    since_start: str = ""


LOST = "what it counted between the last look before that and the restart is lost"


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """A name from outside as one printable line of at most `longest` characters."""
    line = printable(name[: longest + 1])
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def headline(report: AcceptanceReport) -> str:
    parts = report.recording.parts
    engines = f" engine {short(parts[0].engine, 20)}" if len(parts) == 1 else f", {len(parts)} engines" if parts else ""
    return f"Draft acceptance of {short(report.model) or 'unnamed model'}{engines}, {span(report.recording)}"


def measured_from(recording: Recording) -> str:
    """Kind and place of the source, such as `metrics of http://127.0.0.1:8000`."""
    places = ", ".join(short(where) for where in recording.where[:2])
    more = f" and {len(recording.where) - 2} more" if len(recording.where) > 2 else ""
    return f"{SOURCES[recording.source]} {places}{more}".strip()


def span(recording: Recording) -> str:
    if recording.seconds is None:
        return WHOLE_SPANS.get(recording.source, "since server start")
    if recording.source is SourceKind.LOG:
        return f"{duration(recording.seconds)} from the first to the last of its lines"
    return f"over {duration(recording.seconds)}"


def duration(seconds: float) -> str:
    """`30.0 s` below ten minutes, `2 h 5 min` above."""
    if not 600 <= seconds < float("inf"):
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60} min"


def clock(at: float | None) -> str | None:
    """`2026-11-29 20:57:00 UTC`; None where the time is not known or no calendar has it."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return None


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def percents(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.1%} - {high:.1%}"


def length_interval(profile: AcceptanceProfile | None) -> str:
    if profile is None or profile.length_low is None or profile.length_high is None:
        return "-"
    return f"{profile.length_low:.2f} - {profile.length_high:.2f}"


def totals(report: AcceptanceReport) -> Iterator[Total]:
    """The figures that are known; what is not known is left out."""
    now, before = report.profile, report.since_start
    if now is not None:
        yield from _profile_totals(now, before)
    earlier = traffic_in(report.recording.since_start)
    for name, share, share_before in (
        ("prefix hit rate", report.prefix_hit_rate, earlier.prefix_hit_rate),
        ("external hit rate", report.external_hit_rate, earlier.external_hit_rate),
    ):
        if share is not None:
            yield Total(name, percent(share), "" if share_before is None else percent(share_before))
    if report.preemptions is not None:
        since = "" if earlier.preemptions is None else f"{earlier.preemptions:,}"
        yield Total("preemptions", f"{report.preemptions:,}", since)


def price(report: AcceptanceReport) -> Iterator[str]:
    if report.price is not None:
        cost = report.price
        yield f"{cost.drafted:,} tokens drafted: {cost.used:,} used, {cost.unused:,} unused"
        yield f"{cost.steps_per_1000_tokens:,.0f} decode steps per 1,000 tokens; without drafts 1,000"


def finding_title(finding: Finding) -> str:
    """Its id, and how sure the rule is where it says so."""
    return short(finding.id) + (f" ({finding.confidence})" if finding.confidence else "")


def notes(recording: Recording) -> Iterator[str]:
    restarted = [part for part in recording.parts if part.restarted]
    if len(recording.parts) == 1 and restarted:
        yield f"the server was restarted in between; {LOST}"
    elif restarted:
        names = ", ".join(f"{short(part.name)} at {short(part.where)}" for part in restarted[:3])
        more = f" and {len(restarted) - 3} more" if len(restarted) > 3 else ""
        yield f"restarted in between: {names}{more}; {LOST}"
    if not recording.exact:
        yield "the counts are worked out from rounded rates, so the figures are only near the engine's own"
    yield from recording.notes


def _profile_totals(now: AcceptanceProfile, before: AcceptanceProfile | None) -> Iterator[Total]:
    since_start = _figures(before) if before else {}
    for name, value in _figures(now).items():
        if value:
            yield Total(name, value, since_start.get(name, ""))


def _figures(profile: AcceptanceProfile) -> dict[str, str]:
    rate = profile.draft_acceptance_rate
    return {
        "mean acceptance length": f"{profile.mean_acceptance_length:.2f}",
        "its 95% interval": "" if profile.length_low is None else length_interval(profile),
        "draft steps": f"{profile.drafts:,}",
        "draft tokens": f"{profile.draft_tokens:,}",
        "accepted": f"{profile.accepted:,}",
        "draft acceptance rate": "" if rate is None else percent(rate),
        "drafted a step": _drafted_a_step(profile),
    }


def _drafted_a_step(profile: AcceptanceProfile) -> str:
    """Of interest only where drafts are shorter than the positions that were counted."""
    drafted, positions = f"{profile.drafted_per_step:.1f}", len(profile.positions)
    return f"{drafted} of {positions}" if float(drafted) < positions else ""
