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
from dspark_cli.serving.session import MARK, UNKNOWN_LEADER


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
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_the_return_code_is_the_servers(tmp_path: Path, program: str, code: int) -> None:
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


def test_a_server_of_a_background_job_does_not_ignore_signals(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, _ = run("import time; print('up'); time.sleep(60)", tmp_path / "log", send=signal.SIGINT)

        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

    assert code == -signal.SIGINT


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(99)"
CHATTY = "import time; [print('still here', flush=True) or time.sleep(0.02) for _ in range(5000)]"


@pytest.mark.parametrize(
    ("child", "options"),
    [(STUBBORN, ""), (STUBBORN, ", start_new_session=True"), (CHATTY, "")],
    ids=["ignores SIGTERM", "has a session of its own", "goes on printing"],
)
def test_what_the_server_leaves_behind_is_ended(tmp_path: Path, child: str, options: str) -> None:
    program = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}]{options})
print(child.pid)
time.sleep(0.5)
"""

    code, recorder = run(program, tmp_path / "log")

    assert code == 0
    pid = next(int(line) for line in recorder.lines if line.isdigit())
    assert gone_within(pid, seconds=1)


def test_a_server_that_closes_its_output_runs_on(tmp_path: Path) -> None:
    program = "import os, sys, time; os.close(1); os.close(2); time.sleep(1.5); os._exit(9)"

    assert run(program, tmp_path / "log")[0] == 9


def test_sigterm_is_repeated_until_the_server_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.serving.server.REPEAT_SIGTERM_S", 0.3)
    program = """
import signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1) or (len(seen) > 1 and sys.exit(42)))
print("up")
time.sleep(60)
"""

    code, recorder = run(program, tmp_path / "log", send=signal.SIGTERM)

    assert code == 42
    assert recorder.signals == [signal.SIGTERM]


def test_a_full_disk_does_not_stop_the_server() -> None:
    code, recorder = run("print('one'); print('two'); raise SystemExit(5)", Path("/dev/full"))

    assert code == 5
    assert recorder.lines == ["one", "two"]


def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    code, recorder = run("print('x' * 1_000_000)", tmp_path / "log")

    assert code == 0
    assert sum(map(len, recorder.lines)) == 1_000_000
    assert (tmp_path / "log").stat().st_size == 1_000_001


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


def test_a_killed_parent_takes_the_server_and_its_children_along(tmp_path: Path) -> None:
    server = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}])
print(os.getpid(), child.pid)
time.sleep(60)
"""
    parent = f"""
import sys
from pathlib import Path
from dspark_cli.serving.server import run_server
from dspark_cli.serving.session import MARK, UNKNOWN_LEADER
class Show:
    def on_line(self, line): print(line, flush=True)
    def on_signal(self, number): pass
run_server([sys.executable, "-u", "-c", {server!r}], {{}}, Path({str(tmp_path / "log")!r}), Show())
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        family = next([int(pid) for pid in line.split()] for line in tool.stdout if line[0].isdigit())
        tool.kill()

    assert len(family) == 2
    assert all(gone_within(pid, seconds=15) for pid in family)


def test_a_watchdog_that_knows_the_mark_alone_ends_what_carries_it() -> None:
    """As after a kill between the server's start and the line that names its process."""
    mark = "a-mark-of-this-test-alone"
    environment = {**os.environ, MARK: mark}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment) as orphan:
        subprocess.run(
            [sys.executable, "-m", "dspark_cli.serving.watchdog"],
            input=f"{UNKNOWN_LEADER} {mark}\n",
            text=True,
            check=True,
            timeout=30,
        )

        assert gone_within(orphan.pid, seconds=5)
