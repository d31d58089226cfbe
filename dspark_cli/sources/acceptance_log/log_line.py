"""One line of vLLM's log: what a container runtime and vLLM put in front of a message, and the message."""

import json
import re
from dataclasses import dataclass

from dspark_cli.sources.acceptance_log.bounds import printable_name
from dspark_cli.sources.acceptance_log.clock import Moment, moment_of

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CARRIED = re.compile(
    r"(?P<container>\[pod/[^\]]{1,200}\] |[\w.-]{1,64} +\| )?"
    r"(?:(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) )?"
)
"""What docker compose and kubectl put in front of a line."""
_LINE = re.compile(
    r"(?:\((?P<process>[\w .-]{1,80} pid=\d{1,10})\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<wall>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,6})? "
    r"\[?(?:[^\]\s:]{0,200}/)?(?P<file>\w{1,60})\.py:\d{1,6}\] (?P<message>.*)"
)
"""A message counts only at its own place and from its own file: a request's text may quote one."""


@dataclass(frozen=True)
class LogLine:
    """A message of vLLM's, the Python file that it comes from, and the process, with its container where told."""

    process: str
    file: str
    message: str
    moment: Moment


def log_line(text: str) -> LogLine | None:
    """None for what is no line in vLLM's format, as text or JSON."""
    text = _COLOUR.sub("", text)
    carried = _CARRIED.match(text)
    if carried is None:
        return None
    container = printable_name(carried["container"].strip(" |[]") + " ") if carried["container"] else ""
    rest = text[carried.end() :]
    if rest.startswith("{"):
        return _of_json(rest, container, carried["stamp"])
    found = _LINE.search(rest)
    if found is None:
        return None
    moment = moment_of(carried["stamp"], found["wall"])
    return LogLine(container + (found["process"] or ""), found["file"], found["message"], moment)


def _of_json(text: str, container: str, stamp: str | None) -> LogLine | None:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not all(isinstance(told.get(key), str) for key in ("name", "message")):
        return None
    process = printable_name(f"{told.get('processName')} pid={told.get('process')}")
    moment = moment_of(stamp, str(told.get("asctime"))[:19])
    return LogLine(container + process, told["name"].rpartition(".")[2], told["message"], moment)
