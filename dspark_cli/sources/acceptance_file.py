"""Draft acceptance from a file, whatever wrote it: this tool, a benchmark, curl of /metrics, or vLLM's log."""

import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from dspark_cli.errors import BadInput, CannotSay, NotFit
from dspark_cli.facts.recording import EnginePart, Recording, TrendPoint
from dspark_cli.sources.acceptance_log import read_acceptance_log
from dspark_cli.sources.acceptance_metrics import LARGEST_COUNT, since_start, snapshot_of
from dspark_cli.sources.bench_results import read_bench_result
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from dspark_cli.sources.status_draft_context import check_context

LARGEST_DOCUMENT = 512 * 1024 * 1024
LOOKED_AT = 65_536
MOST_POSITIONS = 1000
GIVE_ONE = "give a saved acceptance --json, a benchmark's result file, a saved /metrics page or a vLLM log"


def read_acceptance_file(path: Path) -> Recording:
    """The recording in `path`.

    Raises:
        BadInput: it cannot be read, or is none of these kinds.
        NotFit, CannotSay: it is, but holds no usable speculative figure.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe cannot be read twice, and a device may have no end
            raise BadInput(f"{path} is no file", GIVE_ONE)
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
            file.seek(0)
            if _is_metrics(start) or start.lstrip()[:1] in (b"{", b"["):
                return _of_document(file.read(LARGEST_DOCUMENT + 1), path)
            return read_acceptance_log(file, str(path))
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})", GIVE_ONE) from None


def read_metrics_page(content: bytes, name: str) -> Recording:
    """All that the engines of a saved /metrics page have counted since their start."""
    page = Scrape(name, 0.0, parse_samples(content.decode("utf-8", errors="replace"), name))
    return since_start([snapshot_of(page)])


def _of_document(content: bytes, path: Path) -> Recording:
    if len(content) > LARGEST_DOCUMENT:
        raise BadInput(f"{path} is larger than {LARGEST_DOCUMENT >> 20} MiB", GIVE_ONE)
    if _is_metrics(content[:LOOKED_AT]):
        return read_metrics_page(content, str(path))
    return _saved_report(content, path) or read_bench_result(content, str(path)) or _log(content, path)


def _log(content: bytes, path: Path) -> Recording:
    """A log whose lines begin as JSON does, with a time or a rank in brackets."""
    try:
        return read_acceptance_log(io.BytesIO(content), str(path))
    except CannotSay:
        raise BadInput(f"{path} is no file with draft acceptance that is known here", GIVE_ONE) from None


def _saved_report(content: bytes, path: Path) -> Recording | None:
    """The recording in this tool's own JSON; None where it is another's."""
    from pydantic import TypeAdapter, ValidationError

    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "dspark_tool" not in document:
        return None
    if "error" in document:
        raise BadInput(f"{path} holds an error of this tool, not a report: {str(document['error'])[:200]}", GIVE_ONE)
    try:
        found = TypeAdapter(Recording).validate_python(document["recording"])
    except (ValidationError, KeyError, RecursionError):
        raise BadInput(
            f"{path} is a report of this tool, but not one of acceptance that can be read", GIVE_ONE
        ) from None
    if why := _implausible(found):
        raise NotFit(f"{path} was changed: {why}", GIVE_ONE)
    return found


def _implausible(recording: Recording) -> str | None:
    """Why no server can have counted this."""
    stretches: tuple[EnginePart | TrendPoint, ...] = (*recording.parts, *recording.since_start, *recording.trend)
    if any(not 0 <= number <= LARGEST_COUNT for number in _numbers(asdict(recording))):  # NaN is not either
        return "a number is negative or absurdly large"
    if any(len(stretch.counted.accepted_at) > MOST_POSITIONS for stretch in stretches):
        return f"there are more than {MOST_POSITIONS:,} positions"
    for stretch in stretches:
        if why := stretch.counted.implausible():
            return why
        if any((rate or 0) > 1 for rate in (stretch.traffic.prefix_hit_rate, stretch.traffic.external_hit_rate)):
            return "more tokens are restored than asked for"
    for server in recording.draft_contexts:
        try:
            check_context(server.context)
        except ValueError as error:
            return str(error)
    return None


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        yield from _numbers(tuple(value.values()))
    elif isinstance(value, tuple):
        for held in value:
            yield from _numbers(held)


def _is_metrics(start: bytes) -> bool:
    return b"# TYPE vllm:" in start or b"# HELP vllm:" in start or start.startswith(b"vllm:")
