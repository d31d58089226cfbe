"""Running a server: its exit code, its output, its signals, and that nothing is left of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dspark_cli.serving.server import run_server


class Recorder:
    """Keeps what it is told; sends `send` to this very process once a line says "up"."""

    def __init__(self, send: signal.Signals | None = None) -> None:
        self.lines: list[str] = []
        self.signals: list[int] = []
        self._send = send

    def on_line(self, line: str) -> None:
        self.lines.append(line)
        if self._send and line == "up":
            os.kill(os.getpid(), self._send)

    def on_signal(self, number: int) -> None:
        self.signals.append(number)


def run(program: str, log: Path, send: signal.Signals | None = None) -> tuple[int, Recorder]:
    recorder = Recorder(send)
    return run_server([sys.executable, "-u", "-c", program], {}, log, recorder), recorder


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("print('fine')", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_the_exit_code_is_the_servers(tmp_path: Path, program: str, code: int) -> None:
    assert run(program, tmp_path / "log")[0] == code


def test_lines_and_log_are_complete_with_progress_bars_and_odd_bytes(tmp_path: Path) -> None:
    program = r"import sys; sys.stdout.buffer.write(b'one\n 10%\r 20%\r\xff\nlast'); print('!', file=sys.stderr)"

    _, recorder = run(program, tmp_path / "log")

    assert [line for line in recorder.lines if "!" not in line][:3] == ["one", " 10%", " 20%"]
    assert (tmp_path / "log").read_bytes().startswith(b"one\n 10%\r 20%\r\xff\nlast")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on_and_the_handlers_put_back(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    program = f"""
import signal, sys, time
signal.signal({int(number)}, lambda *_: sys.exit(42))
print("up")
time.sleep(60)
"""

    code, recorder = run(program, tmp_path / "log", send=number)

    assert code == 42
    assert recorder.signals == [number]
    assert signal.getsignal(number) is before


def test_what_the_server_leaves_behind_is_ended(tmp_path: Path) -> None:
    program = """
import subprocess, sys
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"
child = subprocess.Popen([sys.executable, "-c", stubborn])
print(child.pid)
"""

    code, recorder = run(program, tmp_path / "log")

    assert code == 0
    assert gone_within(int(recorder.lines[0]), seconds=1)


def test_a_watcher_that_fails_leaves_no_server(tmp_path: Path) -> None:
    pids: list[int] = []

    class Failing(Recorder):
        def on_line(self, line: str) -> None:
            pids.append(int(line))
            raise RuntimeError("display failed")

    with pytest.raises(RuntimeError, match="display failed"):
        run_server(
            [sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(60)"],
            {},
            tmp_path / "log",
            Failing(),
        )

    assert gone_within(pids[0], seconds=1)


def test_a_killed_parent_takes_the_server_along(tmp_path: Path) -> None:
    parent = f"""
import sys
from pathlib import Path
from dspark_cli.serving.server import run_server
class Show:
    def on_line(self, line): print(line, flush=True)
    def on_signal(self, number): pass
server = "import os, time; print(os.getpid()); time.sleep(60)"
run_server([sys.executable, "-u", "-c", server], {{}}, Path({str(tmp_path / "log")!r}), Show())
"""
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server = int(process.stdout.readline())

    process.kill()
    process.wait()

    assert gone_within(server, seconds=5)
    process.stdout.close()
