"""The options that say what the traffic is like, and what was measured of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import BadInput, CannotSay

if TYPE_CHECKING:
    from dspark_cli.facts.measured_profile import MeasuredProfile
    from dspark_cli.recommending.counted import CountedAcceptance
    from dspark_cli.recommending.situation import Workload

Concurrency = Annotated[int | None, typer.Option(min=1, max=1 << 20, help="Requests that run at once.")]
SharedPrefix = Annotated[int | None, typer.Option(min=0, max=1 << 40, metavar="TOKENS", help="What prompts share.")]
Latency = Annotated[
    bool, typer.Option("--latency", help="A single answer's speed counts most: one request at once, unless you say.")
]
Throughput = Annotated[bool, typer.Option("--throughput", help="Tokens a second of all requests count most.")]
Profile = Annotated[Path | None, typer.Option(metavar="FILE", help="Results of tune, or a saved report of acceptance.")]


def workload_of(concurrency: int | None, shared_prefix: int | None, latency: bool, throughput: bool) -> "Workload":
    """Raises BadInput: latency and throughput together."""
    from dspark_cli.recommending.situation import Goal, Workload

    if latency and throughput:
        raise BadInput("--latency and --throughput exclude each other", "give the one that counts more")
    goal = Goal.LATENCY if latency else Goal.THROUGHPUT if throughput else None
    return Workload(concurrency, shared_prefix, goal)


def measured(file: Path | None) -> "tuple[MeasuredProfile | None, CountedAcceptance | None]":
    """What --profile holds: results of tune, or acceptance that was counted."""
    from dspark_cli.recommending.counted import read_counted
    from dspark_cli.sources.tuning_file import read_profile

    if file is None:
        return None, None
    try:
        return read_profile(file), None
    except BadInput as not_tuned:
        try:
            return None, read_counted(file)
        except BadInput:
            raise not_tuned from None
        except CannotSay as too_little:
            what = f"{file} is no results file of tune, and as counted acceptance it does not do: {too_little.what}"
            raise CannotSay(what, too_little.next_step) from None
