"""What a vLLM log says: how far start-up is, where the server listens, and why it died."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """The stages of start-up, in the order in which a user waits for them."""

    STARTING = "starting"
    LOADING = "loading"
    PROFILING = "profiling"
    COMPILING = "compiling"
    CAPTURING = "capturing"
    READY = "ready"


_STAGE_SIGNS = {
    Stage.LOADING: re.compile(r"Starting to load model|Loading model from scratch|Loading drafter model"),
    Stage.COMPILING: re.compile(r"Starting torch\.compile|Dynamo bytecode transform|Warming up model for the comp"),
    Stage.CAPTURING: re.compile(r"Capturing .*CUDA graphs|Capturing model for"),
    Stage.PROFILING: re.compile(r"Initial profiling/warmup run|KV cache memory|for KV cache|KV cache size"),
    Stage.READY: re.compile(r"Application startup complete"),
}
_ADDRESS = re.compile(r"Starting vLLM .*server.* on (https?://\S+|unix:.*\S)")
_PREFIX = re.compile(r"^(\([\w -]+ pid=\d+\) )?((ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (\[[^\]]*\] )?)?")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Refused|Timeout|Failure)|Exception)(: .*)?$")
_ARGUMENT_ERROR = re.compile(r"^\S.*: error: (?P<reason>.+)$")
_POINTS_ELSEWHERE = re.compile(r"root cause|see (the )?stack trace|initialization failed due to|SystemExit", re.I)
_STARTS_ANEW = re.compile(
    r"Traceback|Process |INFO|WARNING|ERROR|\[rank|The above exception|During handling|sys:|nanobind"
)


def stage_of(line: str) -> Stage | None:
    """The stage that `line` shows the server to be in, if it shows one."""
    return next((stage for stage, sign in _STAGE_SIGNS.items() if sign.search(line)), None)


def address_in(line: str) -> str | None:
    """The URL that the server says it listens on, with a loopback host where it listens on all of them; or unix: and
    the path of its socket."""
    found = _ADDRESS.search(line)
    return found and re.sub(r"//(0\.0\.0\.0|\[::\])(?=:|/|$)", "//127.0.0.1", found[1])


def cause_of_death(lines: Iterable[str], most: int = 4) -> list[str]:
    """The few lines that say why a vLLM process ended: its first exception that does not point to another one.

    vLLM reports one failure several times over, engine first and API server last, and the last says "see root cause
    above". So the first exception counts. A refused argument has no traceback: then it is that line. Empty where the
    log names no cause.
    """
    log = [_LogLine.of(line) for line in lines]
    pointers: list[str] = []
    for index, line in enumerate(log):
        if not _EXCEPTION.match(line.text):
            continue
        message = _message(log[index : index + most])
        if not _POINTS_ELSEWHERE.search(line.text):
            return message
        pointers = pointers or message
    refused = [line.text for line in log if _ARGUMENT_ERROR.match(line.text)]
    return refused[-1:] or pointers


def readable(exception_text: str) -> list[str]:
    """An exception's lines without pydantic's frame ("1 validation error for X", "[type=..., input_value=...]")."""
    lines = [line.strip() for line in exception_text.splitlines() if line.strip()]
    if len(lines) > 1 and "validation error" in lines[0]:
        lines = [line for line in lines[1:] if not line.startswith("For further information visit")]
    return [line.removeprefix("Value error, ").partition(" [type=")[0] for line in lines]


@dataclass(frozen=True)
class _LogLine:
    """`source` is the process and log level in front of a line, empty for what a process printed bare."""

    source: str
    text: str

    @classmethod
    def of(cls, line: str) -> "_LogLine":
        prefix = _PREFIX.match(line)
        source = prefix[0] if prefix else ""
        return cls(source, line[len(source) :].rstrip())


def _message(log: Sequence[_LogLine]) -> list[str]:
    """The exception at the head of `log`; its message may go on below, in lines from the same source."""
    first, *below = log
    lines = [first.text]
    for line in below:
        if line.source != first.source or not line.text.strip() or _STARTS_ANEW.match(line.text):
            break
        lines.append(line.text)
    return readable("\n".join(lines))
