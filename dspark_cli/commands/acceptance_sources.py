"""Where `acceptance` gets its recording from, by its options."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dspark_cli.commands.seconds import require_seconds
from dspark_cli.errors import BadInput
from dspark_cli.facts.recording import Recording

STDIN = "-"


def from_servers(urls: Sequence[str], interval: float | None, timeout: float) -> Recording:
    """Since the servers' start, or over `interval` seconds."""
    from dspark_cli.report.console import waiting
    from dspark_cli.sources import draft_contexts as contexts
    from dspark_cli.sources.acceptance_metrics import between, since_start, snapshots

    first, notes = snapshots(urls, timeout)
    told = contexts.draft_contexts(urls, timeout)
    if interval is None:
        recording = since_start(first, notes)
        return replace(recording, draft_contexts=contexts.since_start(told, recording.where))
    with waiting(f"counting drafts for {interval:g} s"):
        time.sleep(interval)
    last, later_notes = snapshots(urls, timeout)
    recording = between(first, last, list(dict.fromkeys([*notes, *later_notes])))
    told_later = contexts.draft_contexts([url for url in urls if shown(url) in told], timeout)
    silent = [f"{each} told its draft context once only" for each in told if each not in told_later]
    return replace(
        recording,
        draft_contexts=contexts.between(told, told_later, recording.where),
        notes=(*recording.notes, *silent),
    )


def from_log(log: Path) -> Recording:
    """From a file, or from stdin where it is `-`."""
    from dspark_cli.report.console import printable, waiting
    from dspark_cli.sources.acceptance_log import read_acceptance_log

    with waiting(f"reading {printable(str(log))}"):
        if str(log) == STDIN:
            return read_acceptance_log(sys.stdin.buffer, "stdin")
        try:
            with log.open("rb") as lines:
                return read_acceptance_log(lines, str(log))
        except OSError as error:
            raise BadInput(f"{log} cannot be read ({error.strerror})", "give the log of a vLLM server") from None


def from_prometheus(url: str, query_range: str, step: str | None, model: str | None, timeout: float) -> Recording:
    from dspark_cli.report.console import waiting
    from dspark_cli.sources.prometheus_history import parse_duration, read_prometheus

    since_s = parse_duration(query_range)
    require_seconds("--query-range", since_s)
    step_s = parse_duration(step) if step is not None else max(1.0, since_s / 240)
    with waiting("asking Prometheus"):
        return read_prometheus(url, since_s, step_s, model, timeout)


def from_example(name: str) -> Recording:
    from dspark_cli import examples
    from dspark_cli.facts.recording import SourceKind
    from dspark_cli.sources.acceptance_file import read_metrics_page

    if name not in examples.NAMES:
        raise BadInput(f"there is no example {name[:40]!r}", f"choose one of: {', '.join(examples.NAMES)}")
    return replace(read_metrics_page(examples.metrics_page(name), name), source=SourceKind.EXAMPLE)


def from_any(name: str, timeout: float) -> Recording:
    """`name` is a URL or a file of any kind that is known."""
    from dspark_cli.sources.acceptance_file import read_acceptance_file

    if is_url(name):
        return from_servers([name], None, timeout)
    return read_acceptance_file(Path(name))


def is_url(name: str) -> bool:
    return name.lower().startswith(("http:/", "https:/"))


def shown(name: str) -> str:
    """`name` of a source, for display: without the credentials that a URL may hold."""
    from dspark_cli.sources.server_metrics import without_credentials

    return without_credentials(name) if is_url(name) else name
