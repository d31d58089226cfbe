"""Run a server as a child: its output to a log, signals passed on, its exit code kept, nothing left behind."""

import ctypes
import os
import re
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

import psutil

LOOK_AGAIN_S = 0.2
LEFTOVERS_MAY_TAKE_S = 10.0
PR_SET_PDEATHSIG = 1


class Watcher(Protocol):
    """Is told of every line that the server prints and every signal that is passed on to it."""

    def on_line(self, line: str) -> None: ...

    def on_signal(self, number: int) -> None: ...


def run_server(argv: list[str], added_environment: dict[str, str], log: Path, watcher: Watcher) -> int:
    """Run `argv` to its end and return its exit code, 128 + N where signal N killed it.

    Everything it and its children print goes to `log` as it is, and line by line to `watcher`. SIGINT and SIGTERM that
    reach this process are passed on. When this returns, no process of the server's session is left.
    """
    with log.open("wb") as log_file:
        server = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **added_environment},
            start_new_session=True,
            preexec_fn=_die_with_parent() if sys.platform == "linux" else None,
        )
        try:
            with _signals_passed_on_to(server, watcher):
                for line in _lines(server, log_file):
                    watcher.on_line(line)
        finally:
            _end_session(server)
    code = server.wait()
    return code if code >= 0 else 128 - code


def _die_with_parent() -> Callable[[], None]:
    """Even a kill -9 of this process must not leave a server behind: the kernel then sends it SIGTERM."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ask_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask_kernel


@contextmanager
def _signals_passed_on_to(server: subprocess.Popen[bytes], watcher: Watcher) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        if server.poll() is None:
            server.send_signal(number)
            watcher.on_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lines(server: subprocess.Popen[bytes], log_file: IO[bytes]) -> Iterator[str]:
    """The lines that the server prints until it exits, progress bars' carriage returns counted as line ends.

    A child that outlives the server may hold the pipe open, so its end is not waited for.
    """
    assert server.stdout is not None
    pipe = server.stdout.fileno()
    os.set_blocking(pipe, False)
    rest = ""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            exited = server.poll() is not None
            ready = selector.select(timeout=LOOK_AGAIN_S)
            chunk = os.read(pipe, 1 << 16) if ready else b""
            log_file.write(chunk)
            log_file.flush()
            *whole, rest = re.split(r"[\r\n]+", rest + chunk.decode("utf-8", errors="replace"))
            yield from filter(None, whole)
            if not chunk and (exited or ready):
                break
    if rest:
        yield rest


def _end_session(server: subprocess.Popen[bytes]) -> None:
    """End the server where it still runs, and then whatever else is left of its session."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(LEFTOVERS_MAY_TAKE_S)
        except subprocess.TimeoutExpired:
            server.kill()
    left = _session_members(server.pid)
    _, left = psutil.wait_procs(left, timeout=LEFTOVERS_MAY_TAKE_S / 2)
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in left:
            try:
                end(process)
            except psutil.NoSuchProcess:
                continue
        _, left = psutil.wait_procs(left, timeout=LEFTOVERS_MAY_TAKE_S / 2)


def _session_members(session: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        try:
            if process.pid != session and os.getsid(process.pid) == session:
                members.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return members
