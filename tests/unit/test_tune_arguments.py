"""What `dspark-tool tune` refuses before its first server, which takes a minute to start."""

import subprocess
from pathlib import Path

import pytest

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.report.result_file import require_place
from dspark_cli.sources.bounded_get import require_usable_settings
from dspark_cli.tuning.candidates import parse_also
from dspark_cli.tuning.launch import require_usable
from tests.live_server import TOOL, offline_environment
from tests.paths import DFLASH, TARGET

SECRET = "sk-0123456789"


@pytest.mark.parametrize(
    "vllm_args", [["--api-k", SECRET], ["--api_key=x"], ["--ud", "/x"], ["--head"], ["--hea"], ["--port", "1"]]
)
def test_what_tune_sets_itself_is_refused_abbreviated_too(vllm_args: list[str]) -> None:
    with pytest.raises(BadInput, match="does not go with tune"):
        require_usable(vllm_args)


@pytest.mark.parametrize("setting", ["api-key: x", "uds: /x", "headless: true"])
def test_so_it_is_in_a_configuration_file(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(f"max-model-len: 2048\n{setting}\n")

    with pytest.raises(BadInput, match="does not go with tune"):
        require_usable(["--config", str(file)])


def test_a_port_in_a_configuration_file_is_left_to_the_command_line_which_wins(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("port: 8001\nhost: 0.0.0.0\n")

    require_usable(["--config", str(file), "--max-model-len", "2048"])


@pytest.mark.parametrize("setting", ["--api-key", "--hf-token", "--api_k", "api_key", "hf_token", "--kv.password"])
def test_a_secret_is_no_setting_to_compare(setting: str) -> None:
    with pytest.raises(BadInput, match="is secret") as refused:
        parse_also(f"{setting}={SECRET},other")

    assert SECRET not in refused.value.what + refused.value.next_step


@pytest.mark.parametrize("setting", ["--speculative-config={}", "--speculative_config.method=x", "--config=a.yaml"])
def test_nor_is_what_holds_the_settings(setting: str) -> None:
    with pytest.raises(BadInput, match=r"tune sets itself|whole configuration"):
        parse_also(setting)


@pytest.mark.parametrize("arguments", [["--also", "--port=1,2"], ["--also", "--uds=/x"], ["--html", "/no/folder/x"]])
def test_it_is_told_at_once(arguments: list[str]) -> None:
    done = subprocess.run(
        [TOOL, "tune", str(TARGET), "--draft", str(DFLASH), "--dry-run", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=offline_environment(),
    )

    assert done.returncode == 2
    assert "next: " in done.stderr


def test_a_page_needs_a_folder_that_is_there(tmp_path: Path) -> None:
    require_place(tmp_path / "page.html")

    for place in (tmp_path, tmp_path / "no" / "page.html"):
        with pytest.raises(BadInput, match="cannot be written"):
            require_place(place)


@pytest.mark.parametrize(
    ("name", "value"), [("HTTP_PROXY", "::bad::"), ("SSL_CERT_FILE", "/no/file"), ("NO_PROXY", "[::1")]
)
def test_settings_with_which_no_request_can_be_sent_are_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(NotFit):
        require_usable_settings()
