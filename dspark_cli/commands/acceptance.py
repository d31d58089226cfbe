"""`dspark-tool acceptance`: the acceptance profile of a server, a log or a file, and what it means."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.commands.seconds import require_seconds
from dspark_cli.commands.severity import any_from, threshold_named
from dspark_cli.errors import BadInput, CannotSay, ExitCode

if TYPE_CHECKING:
    from dspark_cli.facts.recording import Recording
    from dspark_cli.findings.acceptance.evidence import ExpectedAcceptance
    from dspark_cli.findings.finding import Severity
    from dspark_cli.profiling.acceptance_report import AcceptanceReport

acceptance_commands = typer.Typer(rich_markup_mode=None)

GIVE_A_SOURCE = "give one of --url, --log, --file, --prometheus or --example"


@acceptance_commands.callback(invoke_without_command=True)
def acceptance(
    context: typer.Context,
    url: Annotated[
        list[str] | None, typer.Option(help="A vLLM server, such as http://127.0.0.1:8000. Several: give it again.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Count over this long, from two scrapes. Without it: since server start."),
    ] = None,
    watch: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Look again and again, this often, until Ctrl-C.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="A vLLM log; - reads it from stdin.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="A saved --json, a result of vllm bench serve, aiperf or guidellm, or a saved /metrics page."
        ),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="A Prometheus server that scrapes vLLM.")
    ] = None,
    query_range: Annotated[str, typer.Option(metavar="DURATION", help="How far back to ask Prometheus.")] = "1h",
    step: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How close its samples are; as a rule 240 in all.")
    ] = None,
    example: Annotated[
        str | None, typer.Option(metavar="NAME", help="A recorded server: healthy or collapsed.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Which model, where several are served.")] = None,
    expect: Annotated[
        str | None, typer.Option(metavar="LOW-HIGH", help="The mean acceptance length to expect, such as 2.8-3.6.")
    ] = None,
    model_card: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The drafter's README.md: its acceptance lengths are expected.")
    ] = None,
    worth: Annotated[float, typer.Option(metavar="RATE", help="A position accepted more seldom does not pay.")] = 0.05,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long one answer may take.")] = 10.0,
    fail_on: Annotated[
        str, typer.Option(metavar="SEVERITY", help="Exit 1 from this severity on: info, warning, error; or never.")
    ] = "error",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one page, for a bug report, too.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show which share of drafts is accepted, by position, and what that means.

    \b
    dspark-tool acceptance --url http://127.0.0.1:8000
    dspark-tool acceptance --url http://127.0.0.1:8000 --interval 30 --json
    dspark-tool acceptance --url http://a:8000 --url http://b:8000 --watch 5
    dspark-tool acceptance --log vllm.log --html report.html
    dspark-tool acceptance --prometheus http://prometheus:9090 --query-range 6h
    dspark-tool acceptance --example collapsed
    dspark-tool acceptance diff before.json after.json
    """
    if context.invoked_subcommand is not None:
        _require_no_options(context)
        return
    from dspark_cli.commands import acceptance_sources as sources

    _require_one_source(url, log, file, prometheus, example)
    _require_servers(url, interval, watch)
    require_seconds("--timeout", timeout)
    if not 0 < worth < 1:
        raise BadInput(f"--worth is {worth:g}, and must be between 0 and 1", "give a rate such as 0.05")
    if json and csv:
        raise BadInput("--json and --csv are two formats for one stdout", "give one of them")
    threshold = threshold_named(fail_on)
    expected = _expectation(expect)

    def judged(recording: "Recording") -> "AcceptanceReport":
        return _judged(recording, model, expected, model_card, worth)

    if watch is not None:
        report = _watch(url or [], watch, timeout, judged, quiet=json or csv)
    elif url:
        report = judged(sources.from_servers(url, interval, timeout))
    elif log is not None:
        report = judged(sources.from_log(log))
    elif file is not None:
        if sources.is_url(str(file)):  # not repeated: it may hold a password
            raise BadInput("--file takes a file", "give a server's URL with --url")
        report = judged(sources.from_any(str(file), timeout))
    elif prometheus is not None:
        report = judged(sources.from_prometheus(prometheus, query_range, step, model, timeout))
    else:
        report = judged(sources.from_example(str(example)))
    _show(report, json=json, csv=csv, html=html)
    _exit(report, threshold)


@acceptance_commands.command("diff")
def acceptance_diff(
    a: Annotated[str, typer.Argument(metavar="A", help="Before: a URL, a file or a log.")],
    b: Annotated[str, typer.Argument(metavar="B", help="After: the same kinds.")],
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Which model, where several are served.")] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long a server may take to answer.")] = 10.0,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one page with both, too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare two profiles, position by position: better, worse, or no difference shown. Worse ends with 1.

    \b
    dspark-tool acceptance --url http://127.0.0.1:8000 --interval 60 --json > before.json
    dspark-tool acceptance diff before.json after.json
    """
    from dspark_cli.commands.acceptance_sources import from_any, shown
    from dspark_cli.findings.acceptance.evidence import WORTH
    from dspark_cli.profiling.difference import Change, difference_of
    from dspark_cli.report.acceptance_diff import show_difference
    from dspark_cli.report.acceptance_diff_page import difference_page
    from dspark_cli.report.console import show_note
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.result_file import write_file

    require_seconds("--timeout", timeout)
    sides = [_judged(from_any(name, timeout), model, None, None, WORTH) for name in (a, b)]
    found = difference_of(shown(a), shown(b), *sides)
    if html is not None:
        write_file(html, difference_page(found))
        show_note(f"the page is in {html}")
    if json:
        print_json("acceptance diff", found)
    else:
        show_difference(found)
    codes = {Change.WORSE: ExitCode.FINDINGS, Change.TOO_FEW: ExitCode.CANNOT_SAY}
    if found.verdict in codes:
        raise typer.Exit(codes[found.verdict])


def _require_no_options(context: typer.Context) -> None:
    """Options before a subcommand are not the subcommand's, and would be passed over in silence."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise BadInput(f"{option} stands before {context.invoked_subcommand}", "give options after it")


def _require_one_source(*given: object) -> None:
    if sum(each is not None and each != [] for each in given) != 1:
        raise BadInput("it takes one source", GIVE_A_SOURCE)


def _require_servers(url: Sequence[str] | None, interval: float | None, watch: float | None) -> None:
    if interval is not None and watch is not None:
        raise BadInput("--interval counts once and --watch again and again", "give one of them")
    for option, seconds in (("--interval", interval), ("--watch", watch)):
        if seconds is not None:
            require_seconds(option, seconds)
            if not url:
                raise BadInput(f"{option} looks at servers", "give them: --url http://127.0.0.1:8000")


def _expectation(expect: str | None) -> "ExpectedAcceptance | None":
    from dspark_cli.profiling.expectation import expected_band

    return expected_band(expect) if expect is not None else None


def _judged(
    recording: "Recording",
    model: str | None,
    expected: "ExpectedAcceptance | None",
    model_card: Path | None,
    worth: float,
) -> "AcceptanceReport":
    from dspark_cli.findings.acceptance.evidence import NO_EXPECTATION
    from dspark_cli.profiling.expectation import expected_of_card
    from dspark_cli.profiling.judge import of_model, report_on

    if model is not None:
        recording = of_model(recording, model)
    why_none = NO_EXPECTATION
    if expected is None and model_card is not None:
        try:
            expected = expected_of_card(model_card, len(recording.counted.accepted_at) or None)
        except CannotSay as error:
            why_none = f"{error.what}; {error.next_step}"
    return report_on(recording, expected, worth, why_none)


def _watch(
    urls: Sequence[str],
    every: float,
    timeout: float,
    judged: "Callable[[Recording], AcceptanceReport]",
    quiet: bool,
) -> "AcceptanceReport":
    """Until Ctrl-C; the last report."""
    from dspark_cli.errors import CannotSay
    from dspark_cli.profiling.watch import watched
    from dspark_cli.report.acceptance_watch import WatchView
    from dspark_cli.report.console import message_console

    report = None
    try:
        with WatchView(message_console() if quiet else None) as view:
            for recording in watched(urls, every, timeout):
                report = judged(recording)
                view.update(report)
    except KeyboardInterrupt:
        pass
    if report is None:
        raise CannotSay("the watch ended before its first look", f"let it run for more than {every:g} s")
    return report


def _show(report: "AcceptanceReport", json: bool, csv: bool, html: Path | None) -> None:
    from dspark_cli.report.acceptance import show_acceptance
    from dspark_cli.report.acceptance_csv import acceptance_csv
    from dspark_cli.report.acceptance_page import acceptance_page
    from dspark_cli.report.console import show_note, write_result
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.result_file import write_file

    if html is not None:
        write_file(html, acceptance_page(report))
        show_note(f"the page is in {html}")
    if json:
        print_json("acceptance", report)
    elif csv:
        write_result(acceptance_csv(report))
    else:
        show_acceptance(report)


def _exit(report: "AcceptanceReport", threshold: "Severity | None") -> None:
    from dspark_cli.findings.acceptance.too_little_data import ID

    if any_from(report.findings, threshold):
        raise typer.Exit(ExitCode.FINDINGS)
    if any(finding.id == ID for finding in report.findings):
        raise typer.Exit(ExitCode.CANNOT_SAY)
