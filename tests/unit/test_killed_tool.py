"""kill -9 of `dspark-tool serve` at each stage: no process is left behind, and the log has what was printed."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

GONE_WITHIN_S = 20.0
SERVER = """
import os, signal, subprocess, sys, time
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN); time.sleep(99)"
children = [subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=away) for away in (False, True)]
def stopping(*_):
    print("stopping", flush=True)
    time.sleep(60)
signal.signal(signal.SIGINT, stopping)
print("family", os.getpid(), *(child.pid for child in children), flush=True)
for line in sys.argv[1:]:
    print(line, flush=True)
time.sleep(60)
"""
TOOL = """
import json, os, signal, sys
from pathlib import Path
from dspark_cli.serving import server as serving
from dspark_cli.serving.verification import Question
from dspark_cli.serving.verifying_watcher import VerifyingWatcher
from dspark_cli.facts.asked import Asked
def say(line):  # two threads speak, and print writes the line's end apart
    os.write(1, f"{line}\\n".encode())
class Show:
    def on_line(self, line):
        say(line)
        if line == "interrupt me":
            os.kill(os.getpid(), signal.SIGINT)
    def on_signal(self, number): pass
def tell(found): say("verified")
watcher = VerifyingWatcher(Show(), Question(Asked({"method": "dflash"}), True, None), None, None, tell)
at, log, *argv = sys.argv[1:]
if at == "before the spawn":
    class Unstarted(serving.subprocess.Popen):
        def __init__(self, argv, **options):
            if argv[1:2] == ["-c"]:
                print("family", flush=True); print(at, flush=True); sys.stdin.read()
            super().__init__(argv, **options)
    serving.subprocess.Popen = Unstarted
if at == "between the spawn and its note":
    class Unnoted(serving.ServerSession):
        def __init__(self, leader, mark):
            print("family", leader, flush=True); print(at, flush=True); sys.stdin.read()
    serving.ServerSession = Unnoted
serving.run_server(argv, {}, Path(log), watcher)
"""


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def tool_at(stage: str, log: Path, *lines: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A tool that has come to `stage`, and the processes that it has started."""
    command = [sys.executable, "-c", TOOL, stage, str(log), sys.executable, "-c", SERVER, *lines]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        family: list[int] = []
        for line in tool.stdout:
            word, *pids = line.split()
            if word == "family":
                family = [int(pid) for pid in pids]
            if line.strip() == stage:
                break
        started = [child.pid for child in psutil.Process(tool.pid).children(recursive=True)]
        try:
            yield tool, list({*family, *started})
        finally:
            tool.kill()


def left_of(family: list[int]) -> list[int]:
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := [pid for pid in family if runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


READY = "INFO:     Application startup complete."
STAGES = {
    "Starting to load model /target": [],
    "Initial profiling/warmup run took 1.2 s": ["Starting to load model /target"],
    READY: ["INFO Starting vLLM server on http://127.0.0.1:9"],
    "stopping": [READY, "interrupt me"],
}


@pytest.mark.parametrize(("stage", "before"), STAGES.items(), ids=["loading", "profiling", "ready", "stopping"])
def test_a_kill_at_any_stage_leaves_the_log_and_no_orphan(tmp_path: Path, stage: str, before: list[str]) -> None:
    log = tmp_path / "log"
    printed = [*before, stage] if stage != "stopping" else before
    with tool_at(stage, log, *printed) as (tool, family):
        tool.kill()

        left = left_of(family)

    assert len(family) >= 4  # server, two children, watchdog
    assert left == []
    assert [line for line in log.read_text().splitlines() if not line.startswith("family")] == [*before, stage]


@pytest.mark.parametrize("stage", ["before the spawn", "between the spawn and its note"])
def test_a_kill_around_the_spawn_leaves_no_orphan(tmp_path: Path, stage: str) -> None:
    with tool_at(stage, tmp_path / "log", "hello") as (tool, family):
        tool.kill()

        left = left_of(family)

    assert family  # the watchdog at least
    assert left == []
