"""`dspark-tool serve` from start to end, on a real vLLM."""

import contextlib
import json
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.live_server import TOOL, live_server, offline_environment, prompts
from tests.paths import DFLASH, TARGET

pytestmark = pytest.mark.timeout(600)


def runs(process: psutil.Process) -> bool:
    """Whether it still does anything; one that has ended may wait for its parent to notice."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_server_is_started_serves_and_is_stopped_without_a_trace(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    with live_server(log, stderr=subprocess.PIPE) as server:
        family = psutil.Process(server.tool.pid).children(recursive=True)
        text = server.complete(prompts()[0], max_tokens=8)
        code = server.stop()
        assert server.tool.stderr is not None
        messages = server.tool.stderr.read()

    assert text
    assert code == 0
    assert len(family) >= 2
    assert not [process for process in family if runs(process)]
    for stage in ("starting", "loading", "profiling", f"ready at {server.url}", "the server has stopped"):
        assert stage in messages
    assert "Application startup complete" in log.read_text()


def test_a_server_that_dies_at_start_up_ends_with_its_cause(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"

    arguments = f"--log-file {log} --json -- --max-model-len 999999".split()

    done = subprocess.run(
        [TOOL, "serve", str(TARGET), "--draft", str(DFLASH), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=offline_environment(),
    )

    ended = json.loads(done.stdout)
    assert done.returncode == ended["exit_code"] == 1
    assert "greater than the derived max_model_len" in " ".join(ended["cause"])
    assert str(log) in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in log.read_text()
