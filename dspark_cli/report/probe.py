"""A probe's report on a terminal: the verdict, the phases, restored against cold, then the findings."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.probe import Verdict
from dspark_cli.probing.probe_report import ProbeReport, others_seen
from dspark_cli.report.console import printable, result_console, show_note
from dspark_cli.report.findings import indented, show_findings

WIDE = 78
COLORS = {
    Verdict.HARMLESS: "bold green",
    Verdict.HARMFUL: "bold red",
    Verdict.NOT_EXERCISED: "bold yellow",
    Verdict.CANNOT_SAY: "bold yellow",
}


def show_probe(report: ProbeReport) -> None:
    console, result = result_console(), report.result
    server = result.server
    console.print(
        Text(
            printable(
                f"Probe of {server.model} at {server.url}: {result.prompts} prompts, {result.output_tokens} tokens "
                f"each, {result.concurrency} at a time, made new by {result.freshness}"
            )
        )
    )
    if report.phases:
        console.print(Text("Phases (prompt and restored: tokens a request)"))
        console.print(_phases(report, wide=console.width >= WIDE))
    if report.comparisons:
        console.print(Text("\nAccepted draft tokens that restored prefixes keep (95% interval over prompts)"))
        console.print(_comparisons(report))
    if report.cold and report.restored and report.cold.positions:
        console.print(Text("\nAcceptance by position, all cold and all restored phases"))
        console.print(_positions(report.cold, report.restored))
    _show_verdict(console, report)
    show_findings(console, report.findings, report.not_checked)
    for note in (*result.notes, *_notes(report)):
        show_note(note)


def _show_verdict(console: Console, report: ProbeReport) -> None:
    verdict = report.verdict
    console.print(
        Text.assemble("\nrestored prefixes: ", (str(verdict.verdict), COLORS[verdict.verdict])),
    )
    console.print(indented(Text(printable(verdict.why))))
    console.print(indented(Text.assemble(("next: ", "bold"), printable(verdict.next_step))))


def _notes(report: ProbeReport) -> list[str]:
    notes = []
    if report.result.interrupted:
        notes.append("interrupted: this is what was measured until then")
    if others := others_seen(report.result.phases):
        notes.append(f"{others:,} requests of others are in the counters")
    if restless := [phase.name for phase in report.phases if not phase.settled]:
        notes.append(f"the counters did not come to rest after: {', '.join(restless)}")
    if failed := sum(phase.failed for phase in report.phases):
        notes.append(f"{failed} requests failed")
    return notes


def _phases(report: ProbeReport, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    times = ("TTFT p50", "tokens/s") if wide else ()
    for heading in ("phase", "prompt", "restored", "steps", "length", "interval", *times):
        table.add_column(heading, justify="left" if heading == "phase" else "right", no_wrap=heading != "phase")
    for phase in report.phases:
        interval = "-" if phase.length_low is None else f"{phase.length_low:.2f}-{phase.length_high:.2f}"
        table.add_row(
            printable(phase.name),
            f"{phase.prompt_tokens:,.0f}",
            _figure(phase.cached_tokens, ",.0f"),
            f"{phase.draft_steps:,}",
            _figure(phase.acceptance_length, ".2f"),
            interval,
            *((_milliseconds(phase.ttft_p50_s), _figure(phase.output_tokens_per_s, ",.0f")) if wide else ()),
        )
    return table


def _comparisons(report: ProbeReport) -> Table:
    hit_rates = {phase.name: phase.hit_rate for phase in report.phases}
    table = Table(box=None, pad_edge=False)
    for heading in ("phase", "hit rate", "cold", "restored", "kept", "interval"):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    for each in report.comparisons:
        table.add_row(
            printable(each.phase),
            _figure(hit_rates.get(each.phase), ".0%"),
            f"{each.cold_length:.2f}",
            f"{each.length:.2f}",
            _figure(each.kept, ".0%"),
            "-" if each.kept_low is None else f"{each.kept_low:.0%} to {each.kept_high:.0%}",
        )
    return table


def _positions(cold: AcceptanceProfile, restored: AcceptanceProfile) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("position", "cold", "interval", "restored", "interval"):
        table.add_column(heading, justify="right")
    for before, after in zip(cold.positions, restored.positions, strict=False):
        table.add_row(
            str(before.position),
            f"{before.rate:.1%}",
            f"{before.rate_low:.1%} - {before.rate_high:.1%}",
            f"{after.rate:.1%}",
            f"{after.rate_low:.1%} - {after.rate_high:.1%}",
        )
    return table


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
