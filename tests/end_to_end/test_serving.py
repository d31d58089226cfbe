"""`dspark-tool serve` from start to end, on a real vLLM."""

import contextlib
import json
import subprocess
from pathlib import Path
from typing import IO

import httpx
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


KEY = "sk-not-to-be-seen-77"


def lines_until(stream: IO[str], sign: str) -> list[str]:
    """What is printed up to the line with `sign`, or to the end."""
    lines = []
    for line in stream:
        lines.append(line)
        if sign in line:
            break
    return lines


def test_a_server_says_where_it_differs_from_what_was_asked_and_shows_no_key(tmp_path: Path) -> None:
    """On the CPU vLLM takes its own attention backend, whichever the drafter was given."""
    log = tmp_path / "serve.log"
    vllm_args = ["--api-key", KEY, "--max-num-seqs", "8", "--speculative-config", '{"attention_backend": "FLASH_ATTN"}']

    with live_server(
        log, more_options=["--json"], more_args=vllm_args, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.tool.stderr is not None
        assert server.tool.stdout is not None
        messages = lines_until(server.tool.stderr, "as asked: ")
        family = [server.tool.pid, *(child.pid for child in psutil.Process(server.tool.pid).children(recursive=True))]
        shown = [" ".join(psutil.Process(pid).cmdline()) for pid in family]
        codes = [
            httpx.get(f"{server.url}/dspark/status", headers=headers, timeout=30).status_code
            for headers in ({}, {"Authorization": f"Bearer {KEY}"})
        ]
        assert server.stop() == 0
        result = server.tool.stdout.read()
        messages += server.tool.stderr.readlines()

    settings = {each["setting"]: each for each in json.loads(result)["verification"]["settings"]}
    differing = {name: each["got"] for name, each in settings.items() if each["outcome"] == "differs"}
    assert differing == {"draft attention backend": "CPU_ATTN"}
    assert any("warning: draft attention backend: asked for FLASH_ATTN" in message for message in messages)
    assert {name for name, each in settings.items() if each["outcome"] == "same"} >= {
        "method",
        "draft tokens",
        "draft context",
        "patches",
        "draft layers in the KV cache",
        "prefix caching",
        "max sequences",
    }
    assert codes == [401, 200]
    assert KEY not in result + log.read_text() + "".join([*messages, *shown])
