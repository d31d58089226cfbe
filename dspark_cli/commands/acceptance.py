"""`dspark-tool acceptance`: the acceptance profile of a running server."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import BadInput, CannotSay, NotFit

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

    if interval is not None and not 0 < interval < float("inf"):
        raise BadInput(f"--interval is {interval:g}, and must be more than 0 seconds", "give one like --interval 10")
    if not 0 < timeout < float("inf"):
        raise BadInput(f"--timeout is {timeout:g}, and must be more than 0 seconds", "give one like --timeout 10")
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
        engines_named,
        read_counters,
    )
    from dspark_cli.report.console import waiting
    from dspark_cli.sources.server_metrics import scrape

    first = scrape(url, timeout)
    before = read_counters(first)
    if not before:
        raise NotFit(
            f"the vLLM at {url} runs without speculative decoding (it has no spec_decode counters)",
            "start it with a drafter: dspark-tool serve MODEL --draft DRAFT",
        )
    if interval is None:
        window, last = counted_between({}, before), first
    else:
        with waiting(f"counting drafts for {interval:g} s"):
            time.sleep(interval)
        last = scrape(url, timeout)
        window = counted_between(before, read_counters(last))
    if window.counted.drafts == 0:
        span = "since it started" if interval is None else f"in {interval:g} s"
        raise CannotSay(f"the server at {url} made no draft step {span}", "send it requests, then measure again")
    return AcceptanceReport(
        url=url,
        seconds=None if interval is None else last.taken_at - first.taken_at,
        engines=engines_named(before),
        restarted=window.restarted,
        profile=AcceptanceProfile.of(window.counted),
    )
