"""`dspark-tool acceptance`: the acceptance profile of a running server."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.commands.seconds import require_seconds
from dspark_cli.errors import CannotSay, NotFit

if TYPE_CHECKING:
    from dspark_cli.facts.acceptance import AcceptanceReport


def acceptance(
    url: Annotated[str, typer.Option(help="The vLLM server, such as http://127.0.0.1:8000.")],
    interval: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Count over this long, from two scrapes. Without it: since server start."),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long one scrape may take.")] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show which share of drafts is accepted, by position.

    \b
    dspark-tool acceptance --url http://127.0.0.1:8000
    dspark-tool acceptance --url http://127.0.0.1:8000 --interval 30 --json
    """
    from dspark_cli.report.acceptance import show_acceptance
    from dspark_cli.report.json_document import print_json

    if interval is not None:
        require_seconds("--interval", interval)
    require_seconds("--timeout", timeout)
    report = _measure(url, interval, timeout)
    if json:
        print_json("acceptance", report)
    else:
        show_acceptance(report)


def _measure(url: str, interval: float | None, timeout: float) -> "AcceptanceReport":
    from dspark_cli.facts.acceptance import (
        AcceptanceProfile,
        AcceptanceReport,
        counted_between,
        counted_since_start,
        engines_named,
        read_counters,
    )
    from dspark_cli.report.console import waiting
    from dspark_cli.sources.server_metrics import scrape

    first = scrape(url, timeout)
    before = read_counters(first)
    if not before:
        raise NotFit(
            f"the vLLM at {first.url} runs without speculative decoding (it has no spec_decode counters)",
            "start it with a drafter: dspark-tool serve MODEL --draft DRAFT",
        )
    if interval is None:
        window, seconds, span = counted_since_start(before), None, "since it started"
    else:
        with waiting(f"counting drafts for {interval:g} s"):
            time.sleep(interval)
        last = scrape(url, timeout)
        after = read_counters(last)
        if not after:
            raise NotFit(
                f"the vLLM at {first.url} no longer speculates: its second scrape has no spec_decode counters",
                "see whether it was restarted without its drafter, then measure again",
            )
        window = counted_between(before, after, first.taken_at, last.taken_at)
        seconds, span = last.taken_at - first.taken_at, f"in {interval:g} s"
    if window.counted.drafts == 0:
        what = "; ".join([f"the server at {first.url} made no draft step {span}", *window.notes])
        raise CannotSay(what, "send it requests, then measure again")
    return AcceptanceReport(
        url=first.url,
        seconds=seconds,
        engines=engines_named(window.engines),
        restarted=window.restarted,
        profile=AcceptanceProfile.of(window.counted),
        notes=window.notes,
    )
