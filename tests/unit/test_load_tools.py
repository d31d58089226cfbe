"""Loads by other tools: what they are told, and what becomes of one that fails."""

import dataclasses
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.facts.tuning import Load
from dspark_cli.sources.completions import CompletionsServer
from dspark_cli.sources.vllm_install import VllmInstall
from dspark_cli.tuning.load_tools import ExternalLoad, load_tool
from tests.paths import FIXTURES

INSTALL = VllmInstall("vllm", "0.33.0", Path("/no/vllm"))
SERVER = CompletionsServer("http://127.0.0.1:9/v1/completions", "tiny", None, 30.0, 4)
LOAD = Load("vllm-bench", 12, 64, 32, 0)
TEXTS = [f"prompt {number}" for number in range(12)]
RECORDED = FIXTURES / "bench" / "request-times.vllm-bench.json"


def no_progress(what: str, total: int) -> nullcontext[object]:
    return nullcontext(lambda: None)


def external(program: str, *arguments: str) -> ExternalLoad:
    """A tool that is a Python program; it is given the job's prompts and its folder."""
    return ExternalLoad(
        "a tool",
        lambda job: [sys.executable, "-c", program, str(job.prompts), str(job.folder), *arguments],
        "result.json",
        "prompt",
        "target",
        {},
        30.0,
    )


def test_the_result_of_a_tool_is_read_with_its_own_counts(tmp_path: Path) -> None:
    program = """
import json, shutil, sys
prompts = [json.loads(line)["prompt"] for line in open(sys.argv[1])]
assert prompts == [f"prompt {number}" for number in range(12)]
shutil.copy(sys.argv[3], sys.argv[2] + "/result.json")
"""
    sent = external(program, str(RECORDED))(SERVER, TEXTS, LOAD, no_progress, tmp_path / "log")  # type: ignore[arg-type]

    assert len(sent.requests) == 12
    assert sent.counted is not None
    assert sent.counted.drafts == json.loads(RECORDED.read_text())["spec_decode_num_drafts"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('cannot reach the server'); raise SystemExit(3)", "ended with exit code 3: cannot reach the server"),
        (
            "print('before\\na.b.TokenError: no such tokenizer\\n\\u256d\\u2500 Errors \\u2500\\u256e\\n"
            "\\u2570\\u2500\\u256f\\nLog File: /gone'); raise SystemExit(1)",
            "exit code 1: a.b.TokenError: no such tokenizer$",
        ),
        ("print('\\u2502 no such option \\u2502\\n\\u2570\\u2500\\u256f'); raise SystemExit(2)", "2: no such option$"),
        ("pass", "wrote no result.json"),
        ("import sys; open(sys.argv[2] + '/result.json', 'w').write('{')", "cut short"),
        ("import sys; open(sys.argv[2] + '/result.json', 'w').write('{}')", "holds no times"),
    ],
)
def test_a_tool_that_fails_is_told_with_its_last_words(program: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotFit, match=reason):
        external(program)(SERVER, TEXTS, LOAD, no_progress, tmp_path / "log")  # type: ignore[arg-type]


def test_a_tool_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dspark_cli.tuning.load_tools.STARTS_WITHIN_S", 0.5)
    slow = dataclasses.replace(external("import time; time.sleep(60)"), request_timeout_s=0.1)

    with pytest.raises(NotFit, match="did not end within") as ended:
        slow(SERVER, TEXTS, LOAD, no_progress, tmp_path / "log")  # type: ignore[arg-type]
    assert str(tmp_path / "log") in ended.value.next_step


def test_a_tool_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.tuning.load_tools.which", lambda name: None)

    for name in ("aiperf", "guidellm"):
        with pytest.raises(NotFit, match=f"{name} is not installed"):
            load_tool(name, INSTALL, "target", 30.0)
    with pytest.raises(BadInput, match="is no load"):
        load_tool("wrk", INSTALL, "target", 30.0)


def test_a_benchmark_that_lacks_a_package_is_named_before_a_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.tuning.load_tools.find_spec", lambda name: None)

    with pytest.raises(NotFit, match="pandas"):
        load_tool("vllm-bench", INSTALL, "target", 30.0)


def test_an_api_key_is_handed_over_out_of_sight_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.tuning.load_tools.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("dspark_cli.tuning.load_tools.find_spec", lambda name: name)

    bench = load_tool("vllm-bench", INSTALL, "target", 30.0, "the key")

    assert isinstance(bench, ExternalLoad)
    assert bench.added_environment["OPENAI_API_KEY"] == "the key"
    for name in ("aiperf", "guidellm"):
        with pytest.raises(NotFit, match="VLLM_API_KEY is set") as refused:
            load_tool(name, INSTALL, "target", 30.0, "the key")
        assert "the key" not in str(refused.value)


def test_aiperf_is_not_kept_offline_from_a_local_tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dspark_cli.tuning.load_tools.which", lambda name: f"/bin/{name}")

    of_folder, of_hub = (load_tool("aiperf", INSTALL, target, 30.0) for target in (str(tmp_path), "Qwen/Qwen3-8B"))

    assert isinstance(of_folder, ExternalLoad)
    assert isinstance(of_hub, ExternalLoad)
    assert of_folder.added_environment["HF_HUB_OFFLINE"] == ""
    assert of_hub.added_environment == {}
