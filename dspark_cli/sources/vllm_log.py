"""What a vLLM log says: how far start-up is, where the server listens, and why it died."""

import re
from collections.abc import Iterable, Sequence
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
_ADDRESS = re.compile(r"Starting vLLM .*server.* on (https?://\S+)")
_PREFIX = re.compile(r"^(\([\w -]+ pid=\d+\) )?((ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (\[[^\]]*\] )?)?")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Refused|Timeout|Failure)|Exception)(: .*)?$")
_ARGUMENT_ERROR = re.compile(r"^\S.*: error: (?P<reason>.+)$")
_POINTS_ELSEWHERE = re.compile(r"root cause|see (the )?stack trace|initialization failed due to|SystemExit", re.I)


def stage_of(line: str) -> Stage | None:
    """The stage that `line` shows the server to be in, if it shows one."""
    return next((stage for stage, sign in _STAGE_SIGNS.items() if sign.search(line)), None)


def address_in(line: str) -> str | None:
    """The URL that the server says it listens on, with a loopback host where it listens on all of them."""
    found = _ADDRESS.search(line)
    return found and re.sub(r"//(0\.0\.0\.0|\[::\])(?=:|/|$)", "//127.0.0.1", found[1])


def cause_of_death(lines: Iterable[str], most: int = 4) -> list[str]:
    """The few lines that say why a vLLM process ended: its first exception that does not point to another one.

    vLLM reports one failure several times over, engine first and API server last, and the last says "see root cause
    above". So the first exception counts. A refused argument has no traceback: then it is that line. Empty where the
    log names no cause.
    """
    plain = [_PREFIX.sub("", line.rstrip(), count=1) for line in lines]
    pointers: list[str] = []
    for index, line in enumerate(plain):
        if not _EXCEPTION.match(line):
            continue
        message = _with_continuation(plain, index, most)
        if not _POINTS_ELSEWHERE.search(line):
            return message
        pointers = pointers or message
    refused = [line for line in plain if _ARGUMENT_ERROR.match(line)]
    return refused[-1:] or pointers


def _with_continuation(lines: Sequence[str], start: int, most: int) -> list[str]:
    """An exception's message goes on, indented or not, until an empty line, a new traceback or a log line."""
    message = [lines[start]]
    for line in lines[start + 1 : start + most]:
        if not line.strip() or re.match(r"^(Traceback|Process |\(|INFO|WARNING|ERROR|\[rank|The above|During)", line):
            break
        message.append(line)
    return message
