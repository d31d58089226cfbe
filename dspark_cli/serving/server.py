"""Run a server as a child: its output to a log, signals passed on, its exit code kept, nothing left behind."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

from dspark_cli.errors import NotFit
from dspark_cli.serving.masked_output import MaskedOutput
from dspark_cli.serving.session import MARK, UNKNOWN_LEADER, ServerSession

LOOK_AGAIN_S = 0.2
DRAIN_MAY_TAKE_S = 1.0
REPEAT_SIGTERM_S = 5.0
LONGEST_LINE = 1 << 16
PASSED_ON = (signal.SIGINT, signal.SIGTERM)


class Sink(Protocol):
    """What a server's output is written to."""

    def write(self, chunk: bytes, /) -> object: ...


class Watcher(Protocol):
    """Is told of every line that the server prints and every signal that is passed on to it."""

    def on_line(self, line: str) -> None: ...

    def on_signal(self, number: int) -> None: ...


def run_server(
    argv: list[str], added_environment: dict[str, str], log: Path, watcher: Watcher, secrets: Collection[str] = ()
) -> int:
    """Run `argv` to its end and return its return code, -N where signal N killed it.

    Everything it and its children print goes to `log` as it is, and line by line to `watcher`, `secrets` masked in
    both; neither a full disk nor a terminal that went away stops the server. SIGINT and SIGTERM that reach this process
    are passed on. When this returns, no process of the server is left; when this process is killed, a watchdog sees to
    the same.

    Raises:
        NotFit: the program cannot be started.
    """
    with (
        log.open("wb", buffering=0) as log_file,
        started(argv, added_environment) as (server, _),
        _signals_passed_on_to(server, watcher) as repeat_signals,
    ):
        output = MaskedOutput(log_file, secrets)
        try:
            for line in lines_of(server, output, repeat_signals):
                with contextlib.suppress(OSError):
                    watcher.on_line(output.masked(line))
        finally:
            with contextlib.suppress(OSError):
                output.end()
    return server.wait()


@contextmanager
def started(
    argv: list[str], added_environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], ServerSession]]:
    """The process of `argv`, all its output in one pipe. After the block no process of its session is left; when this
    process is killed, a watchdog sees to the same.

    Raises:
        NotFit: the program cannot be started.
    """
    mark = uuid.uuid4().hex
    with _watchdog() as tell_watchdog:
        # The mark alone, before there is a leader: a kill -9 between the start and the next line leaves no orphan.
        tell_watchdog(f"{UNKNOWN_LEADER} {mark}\n")
        try:
            with _no_signal_ignored():
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **added_environment, MARK: mark},
                    start_new_session=True,
                )
        except OSError as error:
            raise NotFit(f"{argv[0]} cannot be started: {error.strerror}", "shorten its arguments?") from None
        session = ServerSession(process.pid, mark)
        tell_watchdog(f"{session.leader} {session.mark}\n")
        try:
            yield process, session
        finally:
            session.end()


@contextmanager
def _no_signal_ignored() -> Iterator[None]:
    """A shell lets a script's background jobs ignore SIGINT, and so would all that they start: one that is passed on
    while vLLM is imported would be lost. What has a handler instead starts with none."""
    may_change = threading.current_thread() is threading.main_thread()
    ignored = [number for number in PASSED_ON if may_change and signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def _watchdog() -> Iterator[Callable[[str], None]]:
    command = [sys.executable, "-P", "-m", "dspark_cli.serving.watchdog"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as watchdog:
        pipe = watchdog.stdin
        assert pipe is not None

        def tell(line: str) -> None:
            with contextlib.suppress(OSError):
                pipe.write(line)
                pipe.flush()

        yield tell


@contextmanager
def _signals_passed_on_to(server: subprocess.Popen[bytes], watcher: Watcher) -> Iterator[Callable[[], None]]:
    """Pass signals on; the function it gives repeats SIGTERM, which vLLM loses in parts of its start-up."""
    last_sigterm: list[float] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if server.poll() is None:
            server.send_signal(number)
            if number == signal.SIGTERM:
                last_sigterm[:] = [time.monotonic()]
            with contextlib.suppress(OSError):
                watcher.on_signal(number)

    def repeat_signals() -> None:
        if last_sigterm and time.monotonic() - last_sigterm[0] > REPEAT_SIGTERM_S and server.poll() is None:
            server.send_signal(signal.SIGTERM)
            last_sigterm[:] = [time.monotonic()]

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield repeat_signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def lines_of(server: subprocess.Popen[bytes], log_file: Sink, on_tick: Callable[[], None]) -> Iterator[str]:
    """The lines that the server prints until it exits; progress bars' carriage returns count as line ends."""
    rest = ""
    for chunk in _chunks(server, on_tick):
        with contextlib.suppress(OSError):
            log_file.write(chunk)
        *whole, rest = re.split(r"[\r\n]+", rest + chunk.decode("utf-8", errors="replace"))
        if len(rest) > LONGEST_LINE:
            whole, rest = [*whole, rest], ""
        yield from filter(None, whole)
    if rest:
        yield rest


def _chunks(server: subprocess.Popen[bytes], on_tick: Callable[[], None]) -> Iterator[bytes]:
    """What comes through the server's pipe, until the server has exited and the pipe is drained.

    The pipe's own end decides nothing: the server may close it and go on, and a child that outlives the server may
    hold it open and go on printing.
    """
    assert server.stdout is not None
    pipe = server.stdout.fileno()
    os.set_blocking(pipe, False)
    drain_until = float("inf")
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while time.monotonic() < drain_until:
            on_tick()
            exited = server.poll() is not None
            if exited and drain_until == float("inf"):
                drain_until = time.monotonic() + DRAIN_MAY_TAKE_S
            ready = selector.select(timeout=LOOK_AGAIN_S)
            chunk = os.read(pipe, 1 << 16) if ready else b""
            if chunk:
                yield chunk
            elif exited:
                return
            elif ready:
                selector.unregister(pipe)
