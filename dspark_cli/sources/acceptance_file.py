"""Draft acceptance from a file, whatever wrote it: this tool, a benchmark, curl of /metrics, or vLLM's log."""

import io
import json
from pathlib import Path

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.facts.recording import Recording
from dspark_cli.sources.acceptance_log import read_acceptance_log
from dspark_cli.sources.acceptance_metrics import since_start, snapshot_of
from dspark_cli.sources.bench_results import read_bench_result
from dspark_cli.sources.server_metrics import Scrape, parse_samples

LARGEST_DOCUMENT = 512 * 1024 * 1024
LOOKED_AT = 65_536
GIVE_ONE = "give a saved acceptance --json, a benchmark's result file, a saved /metrics page or a vLLM log"


def read_acceptance_file(path: Path) -> Recording:
    """The recording in `path`.

    Raises:
        BadInput: it cannot be read, or is none of these kinds.
        NotFit, CannotSay: it is, but holds no usable speculative figure.
    """
    try:
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
            file.seek(0)
            if _is_metrics(start) or start.lstrip()[:1] in (b"{", b"["):
                return _of_document(file.read(LARGEST_DOCUMENT + 1), path)
            return read_acceptance_log(file, str(path))
    except (OSError, io.UnsupportedOperation) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{path} cannot be read ({reason})", GIVE_ONE) from None


def read_metrics_page(content: bytes, name: str) -> Recording:
    """All that the engines of a saved /metrics page have counted since their start."""
    page = Scrape(name, 0.0, parse_samples(content.decode("utf-8", errors="replace"), name))
    return since_start([snapshot_of(page)])


def _of_document(content: bytes, path: Path) -> Recording:
    if len(content) > LARGEST_DOCUMENT:
        raise BadInput(f"{path} is larger than {LARGEST_DOCUMENT >> 20} MiB", GIVE_ONE)
    if _is_metrics(content[:LOOKED_AT]):
        return read_metrics_page(content, str(path))
    found = _saved_report(content, path) or read_bench_result(content, str(path))
    if found is None:
        raise BadInput(f"{path} is no file with draft acceptance that is known here", GIVE_ONE)
    return found


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
    for part in found.parts:
        if why := part.counted.implausible():
            raise NotFit(f"{path} was changed: {why}", GIVE_ONE)
    return found


def _is_metrics(start: bytes) -> bool:
    return b"# TYPE vllm:" in start or b"# HELP vllm:" in start or start.startswith(b"vllm:")
