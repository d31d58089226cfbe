"""A real vLLM server on the CPU with the DFlash drafter, started through `dspark-tool serve`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from tests.paths import DFLASH, MODELS, TARGET, TESTS

TOOL = str(Path(sys.executable).with_name("dspark-tool"))
FAULTS = ["--worker-extension-cls", "draft_faults.DraftFaults"]
MODEL_LENGTH = 4096
ENGINE_ARGS = ["--max-model-len", str(MODEL_LENGTH), "--kv-cache-memory-bytes", str(1 << 30), "--enforce-eager"]
READY_WITHIN_S = 240.0
STOPPED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Served:
    """A server at `url` that calls its model "tiny"."""

    url: str

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=10).text

    def complete(self, prompt: str, max_tokens: int = 48) -> str:
        """The text that the server continues `prompt` with, at temperature 0."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["text"])

    def plant(self, fault: str, amount: float = 0.0) -> None:
        """Plant a fault of tests/faults/draft_faults.py; the server must have been started with faults."""
        self._call("plant", fault, amount)

    def heal(self) -> None:
        self._call("heal")

    def treat_restored(self, policy: str) -> None:
        """Change the policy of the patched runtime, which the server must have been started with."""
        self._call("treat_restored", policy)

    def _call(self, method: str, *arguments: object) -> None:
        call_workers(self.url, method, *arguments)


@dataclass(frozen=True)
class LiveServer(Served):
    """One that this process started."""

    tool: subprocess.Popen[str]
    log: Path

    def stop(self) -> int:
        """Interrupt `dspark-tool serve` as Ctrl-C would; its exit code."""
        if self.tool.poll() is None:
            self.tool.send_signal(signal.SIGINT)
        return self.tool.wait(STOPPED_WITHIN_S)


def call_workers(url: str, method: str, *arguments: object) -> Any:
    """What the workers answer to a method of tests/faults; the server needs VLLM_SERVER_DEV_MODE=1."""
    body = {"method": method, "args": list(arguments)}
    answer = httpx.post(f"{url}/collective_rpc", json=body, timeout=120)
    answer.raise_for_status()
    return answer.json()["results"] if answer.content else None


def prompts() -> list[str]:
    """Held-out Python source that no model saw in training."""
    texts: list[str] = json.loads((MODELS / "prompts.json").read_text())
    return texts


def offline_environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def live_server(
    log: Path,
    *,
    draft: Path = DFLASH,
    faults: bool = False,
    more_options: Sequence[str] = (),
    more_args: Sequence[str] = (),
    more_environment: Mapping[str, str] = MappingProxyType({}),
    **popen: Any,
) -> Iterator[LiveServer]:
    """Start the server, wait until it answers, and stop it in the end, whatever happens in between.

    With `faults` it takes the calls that plant them. `more_options` are those of `dspark-tool serve`, `more_args` are
    vLLM's; `more_environment` has the last word.
    """
    port = free_port()
    vllm_args = f"--host 127.0.0.1 --port {port} --served-model-name tiny".split() + ENGINE_ARGS + FAULTS * faults
    vllm_args += more_args
    environment = offline_environment()
    if faults:
        environment |= {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": str(TESTS / "faults")}
    options = ["--draft", str(draft), "--status", "--log-file", str(log), "--quiet", *more_options]
    tool = subprocess.Popen(
        [TOOL, "serve", str(TARGET), *options, "--", *vllm_args],
        env=environment | dict(more_environment),
        text=True,
        **popen,
    )
    server = LiveServer(f"http://127.0.0.1:{port}", tool, log)
    try:
        wait_until_it_answers(server, log)
        yield server
    finally:
        server.stop()


def wait_until_it_answers(server: LiveServer, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if server.tool.poll() is not None:
            raise RuntimeError(f"dspark-tool serve ended with {server.tool.returncode}; log: {log}")
        try:
            if httpx.get(f"{server.url}/health", timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise TimeoutError(f"no answer within {READY_WITHIN_S:g} s; log: {log}")
