"""A server that runs beside the work of this process, and ends with it: until it is ready, while it serves, and why it
died."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from textwrap import shorten
from threading import Thread

from dspark_cli.errors import NotFit
from dspark_cli.serving.masked_output import MaskedOutput
from dspark_cli.serving.server import lines_of, started
from dspark_cli.serving.session import ServerSession
from dspark_cli.sources.vllm_advice import next_step_for
from dspark_cli.sources.vllm_log import cause_of_death

LOOK_AGAIN_S = 0.25
ONE_LOOK_MAY_TAKE_S = 5.0
OUTPUT_ENDS_WITHIN_S = 5.0
LONGEST_CAUSE = 300


class ServerDied(NotFit):
    """Before it was asked to. `what` has the cause from its log."""


def _unheard(line: str) -> None:
    pass


@dataclass(frozen=True)
class BackgroundProcess:
    """A running child whose output goes to `log`."""

    process: Popen[bytes]
    session: ServerSession
    log: Path
    reader: Thread = field(repr=False)

    @property
    def return_code(self) -> int | None:
        """None while it runs; -N where signal N killed it."""
        return self.process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Its return code, or None where it runs on after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.return_code is None and time.monotonic() < deadline:
            time.sleep(min(LOOK_AGAIN_S, timeout_s))
        return self.return_code

    def require_alive(self) -> None:
        """Raises ServerDied."""
        if self.return_code is not None:
            raise self.death()

    def death(self) -> ServerDied:
        """Why it is gone, by its log."""
        self.reader.join(OUTPUT_ENDS_WITHIN_S)
        code = self.return_code
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        cause = shorten(" ".join(self._cause()), LONGEST_CAUSE, placeholder=" ...")
        what = f"the server ended {how}" + (f": {cause}" if cause else "")
        advice = next_step_for(cause)
        return ServerDied(what, f"{advice}; the whole log: {self.log}" if advice else f"read the whole log: {self.log}")

    def _cause(self) -> list[str]:
        try:
            with self.log.open(errors="replace") as lines:
                return cause_of_death(lines)
        except OSError:
            return []


@contextmanager
def in_background(
    argv: list[str],
    added_environment: dict[str, str],
    log: Path,
    on_line: Callable[[str], None] = _unheard,
    secrets: Collection[str] = (),
) -> Iterator[BackgroundProcess]:
    """Run `argv` for the time of the block, its output in `log` and, line by line, told to `on_line` (from another
    thread), both with `secrets` masked. After the block nothing of it is left; nor is when this process is killed.

    Raises:
        NotFit: it cannot be started, or its log cannot be written.
    """
    try:
        log_file = log.open("wb", buffering=0)
    except OSError as error:
        raise NotFit(f"the log {log} cannot be written: {error.strerror}", "make room there") from None
    with log_file:
        with started(argv, added_environment) as (process, session):
            reader = Thread(target=_read, args=(process, MaskedOutput(log_file, secrets), on_line), daemon=True)
            reader.start()
            yield BackgroundProcess(process, session, log, reader)
        reader.join(OUTPUT_ENDS_WITHIN_S)


def wait_until_ready(server: BackgroundProcess, url: str, within_s: float) -> None:
    """Wait for GET `url`/health to be answered well.

    Raises:
        ServerDied: it ended instead, with its cause.
        NotFit: not within `within_s`.
    """
    import httpx

    deadline = time.monotonic() + within_s
    with httpx.Client(timeout=ONE_LOOK_MAY_TAKE_S, trust_env=False) as client:
        while True:
            server.require_alive()
            # Streamed, for who answers there may never end.
            with contextlib.suppress(httpx.HTTPError), client.stream("GET", f"{url}/health") as answer:
                if answer.is_success:
                    return
            if time.monotonic() > deadline:
                raise NotFit(
                    f"the server was not ready within {within_s:,.0f} s",
                    f"see its log: {server.log}; or give it longer: --ready-within",
                )
            time.sleep(LOOK_AGAIN_S)


def _read(process: Popen[bytes], output: MaskedOutput, on_line: Callable[[str], None]) -> None:
    for line in lines_of(process, output, lambda: None):
        with contextlib.suppress(OSError, ValueError):  # a full disk, or a log that is closed
            on_line(output.masked(line))
    with contextlib.suppress(OSError, ValueError):
        output.end()
