"""No API key, token or password of a server is shown: not in its command, its log, its process or its errors."""

import io
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.serving.command import serve_command
from dspark_cli.serving.masked_output import MaskedOutput
from dspark_cli.serving.secrets import api_keys, out_of_sight, secrets_of, without_masked, without_secrets
from dspark_cli.serving.server import run_server
from dspark_cli.serving.speculative import Speculation
from dspark_cli.sources.checkpoint import Method
from dspark_cli.sources.vllm_install import VllmInstall
from tests.live_server import TOOL, offline_environment
from tests.paths import DFLASH, TARGET

KEY = "sk-4f9a77c1"
GPU_BUILD = VllmInstall("vllm", "0.33.0", Path("/opt/vllm"))
SPECULATION = Speculation(Method.DFLASH, "/drafter", 7)


@pytest.fixture
def configuration(tmp_path: Path) -> str:
    """A file for --config with two keys, a nested secret and a password in a URL."""
    file = tmp_path / "serve.yaml"
    file.write_text(
        "api-key: [key-of-file, second-key]\nkv-transfer-config: {access_key: nested-key}\nport: 8000\n"
        "otlp-traces-endpoint: http://me:hunter22@collector:4317\n"
    )
    return str(file)


@pytest.mark.parametrize(
    ("argv", "rest", "variables"),
    [
        (["--api-key", KEY, "--port", "1"], ["--port", "1"], {"VLLM_API_KEY": KEY}),
        ([f"--api_key={KEY}"], [], {"VLLM_API_KEY": KEY}),
        (["--api-k", KEY], [], {"VLLM_API_KEY": KEY}),
        (["--hf-token", "hf_abc"], [], {"HF_TOKEN": "hf_abc"}),
        (["--hf-token", "--port", "1"], ["--hf-token", "--port", "1"], {}),  # vLLM then takes that of its own login
        (["--api-key", "--port", "1"], ["--api-key", "--port", "1"], {}),
        (["--api-server-count", "2"], ["--api-server-count", "2"], {}),
    ],
)
def test_one_key_is_handed_over_where_ps_does_not_show_it(
    argv: list[str], rest: list[str], variables: dict[str, str]
) -> None:
    assert out_of_sight(argv) == (rest, variables, [])


def test_of_several_keys_none_is_lost_and_the_user_hears_of_it() -> None:
    argv = ["--api-key", "one", "two"]

    rest, variables, notes = out_of_sight(argv)

    assert (rest, variables) == (argv, {})
    assert "--config FILE" in notes[0]
    assert "one" not in notes[0]


def test_the_shown_command_and_the_json_have_the_variable_masked() -> None:
    command = serve_command(GPU_BUILD, "/target", SPECULATION, ["--api-key", KEY])

    assert command.added_environment["VLLM_API_KEY"] == KEY
    assert KEY not in " ".join(command.argv)
    assert "VLLM_API_KEY='***'" in command.shown()
    assert command.as_shown().added_environment["VLLM_API_KEY"] == "***"


def test_a_password_in_a_url_is_masked() -> None:
    assert without_secrets(["--otlp", "http://me:hunter22@host:1/p"]) == ["--otlp", "http://me:***@host:1/p"]


@pytest.mark.parametrize(
    ("argv", "environment", "keys"),
    [
        (["--api-key", "one", "two"], {"VLLM_API_KEY": "other"}, ["one", "two"]),
        ([], {"VLLM_API_KEY": "other"}, ["other"]),
        (["--api-key"], {"VLLM_API_KEY": "other"}, ["other"]),
        ([], {}, []),
    ],
)
def test_the_keys_are_those_that_vllm_takes(argv: list[str], environment: dict[str, str], keys: list[str]) -> None:
    assert api_keys(argv, environment) == keys


def test_a_configuration_file_is_read_for_keys_and_secrets(configuration: str) -> None:
    argv = ["--config", configuration]

    assert api_keys(argv, {}) == ["key-of-file", "second-key"]
    assert api_keys([*argv, "--api-key", "wins"], {}) == ["wins"]
    assert secrets_of(argv, {}) == {"key-of-file", "second-key", "nested-key", "hunter22"}


@pytest.mark.parametrize("content", [b"", b"- a list", b"\xff\xfe: {", b"a: &a [*a]", b"port: 8000: 1"])
def test_a_configuration_that_is_none_has_no_secrets(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_bytes(content)

    assert secrets_of(["--config", str(tmp_path / "serve.yaml")], {}) == frozenset()
    assert secrets_of(["--config", str(tmp_path)], {}) == frozenset()
    assert secrets_of(["--config"], {}) == frozenset()


def test_variables_are_secret_by_their_name() -> None:
    environment = {
        "HF_TOKEN": "hf_abcdef",
        "AWS_SECRET_ACCESS_KEY": "aws-secret-key",
        "TOKENIZERS_PARALLELISM": "false-or-true",
        "SSH_KEY": str(Path(__file__)),  # a file, and no secret
        "SOME_KEY": "short",
        "VLLM_API_KEY": "test",
    }

    assert secrets_of([], environment) == {"hf_abcdef", "aws-secret-key", "test"}


def masked(text: bytes, cuts: list[int], secrets: set[str]) -> bytes:
    """`text` through a MaskedOutput, in pieces."""
    file = io.BytesIO()
    output = MaskedOutput(file, secrets)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(edges):
        output.write(text[begin:end])
    output.end()
    return file.getvalue()


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_a_log_without_secrets_in_it_is_not_changed(text: bytes, cuts: list[int]) -> None:
    assert masked(text, cuts, set()) == text
    assert masked(text, cuts, {"never-to-be-seen-in-it"}) == text


@given(st.lists(st.integers(0, 80), max_size=6))
def test_a_secret_is_masked_however_it_comes_in_pieces(cuts: list[int]) -> None:
    line = f"args: {{'k': '{KEY}'}} {KEY}\r 50%\n{KEY}".encode()

    assert masked(line, cuts, {KEY}) == b"args: {'k': '***'} ***\r 50%\n***"


def test_a_secret_within_a_word_is_another_word() -> None:
    assert masked(b"tinyness tiny tiny-2 /tiny/", [], {"tiny"}) == b"tinyness *** tiny-2 /***/"


def test_what_a_server_prints_is_masked_in_its_log_and_for_its_watcher(tmp_path: Path) -> None:
    lines: list[str] = []

    class Show:
        def on_line(self, line: str) -> None:
            lines.append(line)

        def on_signal(self, number: int) -> None:
            pass

    program = f"print('Error: bad key {KEY} for port 1', flush=True); raise SystemExit(3)"

    code = run_server([sys.executable, "-c", program], {}, tmp_path / "log", Show(), {KEY})

    assert code == 3
    assert (tmp_path / "log").read_text() == "Error: bad key *** for port 1\n"
    assert lines == ["Error: bad key *** for port 1"]


def test_a_process_that_hides_its_arguments_shows_them_masked_to_ps() -> None:
    program = """
import sys
sys.argv = ["dspark-tool", *sys.argv[1:]]
from dspark_cli.serving.own_title import hide_own_arguments
hide_own_arguments()
print("hidden", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, "serve", "--", "--api-key", KEY, "--port", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "hidden\n"
        shown = " ".join(psutil.Process(tool.pid).cmdline())
        tool.communicate()

    assert KEY not in shown
    assert "--port 1" in shown


@pytest.mark.parametrize("form", [["--json"], []])
def test_a_dry_run_shows_no_secret_of_any_kind(form: list[str], configuration: str) -> None:
    kv = json.dumps({"kv_connector": "X", "kv_connector_extra_config": {"secret_access_key": KEY}})
    vllm_args = ["--api-key", KEY, "--hf-token", KEY, "--ssl-keyfile-password", KEY, "--kv-transfer-config", kv]

    done = subprocess.run(
        [
            TOOL,
            "serve",
            str(TARGET),
            "--draft",
            str(DFLASH),
            "--dry-run",
            *form,
            "--",
            *vllm_args,
            "--config",
            configuration,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={**offline_environment(), "HF_TOKEN": KEY},
    )

    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    assert "***" in done.stdout


def test_an_error_shows_no_secret() -> None:
    broken = f'{{"hf_token": "{KEY}"'

    done = subprocess.run(
        [TOOL, "serve", str(TARGET), "--draft", str(DFLASH), "--dry-run", "--", "--speculative-config", broken],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ,
    )

    assert done.returncode == 2
    assert KEY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "argv",
    [
        ["--kv-transfer-config.kv_connector_extra_config.password", KEY],
        [f"--kv-transfer-config.kv_connector_extra_config.api_key={KEY}"],
        ["--additional-config.api_key+", KEY],
        ["-cc.access_token", KEY],
        ["--kv", f'{{"access_token": "{KEY}"}}'],
        [f'--kv={{"a": {{"token": "{KEY}"}}}}'],
        ["--kv", f'{{"Authorization": "{KEY}"}}'],
        ["--kv", f'{{"auth": "{KEY}"}}'],
        ["--kv", f' {{"password": "{KEY}"}}'],
        ["--kv", f'{{"password": "{KEY}"'],
        ["--kv", f"{{'password': '{KEY}'}}"],
        ["--kv", f'{{"headers": ["Bearer {KEY}"]}}'],
        ["--header", f"Authorization: Bearer {KEY}"],
        ["--tokenizer", f"https://{KEY}@hub/x"],
        ["--tokenizer", f"https://me:{KEY}@and-more@hub/x"],
        ["--download-dir", f"https://hub/x?token={KEY}"],
        ["--download-dir", f"https://hub/x?a=1&X-Amz-Signature={KEY}"],
    ],
)
def test_a_secret_is_masked_wherever_it_stands(argv: list[str]) -> None:
    assert KEY not in " ".join(without_secrets(argv))


@pytest.mark.parametrize(
    "argv",
    [
        ["--kv", '{"bos_token": "<s>", "max_tokens": 5, "token_id": 3}'],
        ["--kv", "{broken: tokens}"],
        ["--tokenizer", "org/name", "--allow-credentials", "-tp", "2"],
        ["--allowed-origins", '["http://a:8000", "https://b/c@d"]'],
        ["--chat-template", "{% if token_count %}{{ x }}{% endif %}"],
        ["--served-model-name", "me@home"],
    ],
)
def test_what_is_no_secret_is_shown(argv: list[str]) -> None:
    assert without_secrets(argv) == argv


def test_a_key_before_a_short_option_is_handed_over_and_the_option_stays() -> None:
    assert out_of_sight(["--api-key", KEY, "-tp", "2"]) == (["-tp", "2"], {"VLLM_API_KEY": KEY}, [])


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--port", "8001", "--api-key", "***", "***"], ["--port", "8001"]),
        (["--api-key", "***", "***", "-tp", "2"], ["-tp", "2"]),
        (["--hf-token=***", "--seed", "-1"], ["--seed", "-1"]),
        (["--kv", '{"password": "***"}', "--port", "1"], ["--port", "1"]),
        (["/model", "--tokenizer", "https://me:***@hub/x"], ["/model"]),
        ([], []),
    ],
)
def test_what_is_pasted_has_no_mask_for_a_value(words: list[str], kept: list[str]) -> None:
    assert without_masked(words) == kept


@given(st.lists(st.text(max_size=12), max_size=6))
def test_masking_twice_is_masking_once(words: list[str]) -> None:
    assert without_secrets(without_secrets(words)) == without_secrets(words)
