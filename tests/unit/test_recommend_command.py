"""`dspark-tool recommend` as a user meets it."""

import dataclasses
import json
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from dspark_cli.facts.measured_profile import BestCount, MeasuredProfile
from tests.cheap_tune import QUESTION
from tests.live_server import TOOL, offline_environment
from tests.paths import DFLASH, DSPARK, TARGET, TESTS

PUBLIC = TESTS.parent / "benchmarks" / "public_models"
QWEN = (str(PUBLIC / "qwen3-8b"), "--draft", str(PUBLIC / "qwen3-8b-dflash-b16"))
SECRET = "sk-0123456789"


def recommend(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOL, "recommend", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=offline_environment() | {"COLUMNS": "80"} | environment,
    )


def test_the_table_reads_at_80_columns_and_ends_with_the_command() -> None:
    done = recommend(*QWEN, "--gpu", "h200", "--", "-tp", "2")

    assert done.returncode == 0, done.stderr
    _, *table, command = done.stdout.rstrip().splitlines()  # names of any length stand in the first and last line
    assert all(len(line) <= 80 for line in table)
    words = shlex.split(command)
    assert words[:5] == ["dspark-tool", "serve", QWEN[0], "--draft", QWEN[2]]
    assert words[words.index("--") + 1 :][:2] == ["-tp", "2"]
    assert json.loads(words[-1]) == {"attention_backend": "FLASH_ATTN"}


def test_json_is_one_document_with_a_reason_for_every_choice() -> None:
    done = recommend(*QWEN, "--gpu", "b200", "--json")

    document = json.loads(done.stdout)
    assert document["speculative_config"]["num_speculative_tokens"] == 15
    assert all(choice["reason"] and choice["source"] and choice["confidence"] for choice in document["choices"])


def test_a_conflict_is_refused_with_exit_code_1() -> None:
    done = recommend(str(TARGET), "--draft", str(DSPARK))

    assert done.returncode == 1
    assert "needs-runner-v2" in done.stdout
    assert "dspark-tool serve refuses this" in done.stdout


def test_the_configuration_file_has_the_settings_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"

    done = recommend(
        *QWEN,
        "--gpu",
        "h200",
        "--config",
        str(file),
        "--",
        "--max-model-len",
        "8k",
        "--api-key",
        SECRET,
        "--enable-lora",
    )

    settings = yaml.safe_load(file.read_text())
    assert f"vllm serve --config {file}" in done.stderr
    assert "***" not in done.stdout
    assert settings["model"] == QWEN[0]
    assert (settings["max-model-len"], settings["enable-lora"]) == ("8k", True)
    assert settings["speculative-config"]["attention_backend"] == "FLASH_ATTN"
    assert "api-key" not in settings
    assert SECRET not in file.read_text() + done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ([str(TARGET), "--draft", "/no/drafter"], 2, "no model folder /no/drafter"),
        (["/no/target", "--draft", str(DFLASH)], 2, "no model folder /no/target"),
        ([str(TARGET), "--draft", str(TARGET)], 2, "no DFlash or DSpark drafter"),
        ([*QWEN, "--gpu", "abacus"], 2, "'abacus' is not known"),
        ([*QWEN, "--latency", "--throughput"], 2, "exclude each other"),
        ([*QWEN, "--concurrency", "0"], 2, "--concurrency"),
        ([*QWEN, "--profile", "/no/profile"], 2, "/no/profile"),
        ([*QWEN, "--vllm", "/no/vllm"], 2, "/no/vllm"),
        ([*QWEN, "--gpu", "h200", "--config", "serve.json"], 2, "not serve.json"),
        ([*QWEN, "--gpu", "h200", "--config", "/no/folder/serve.yaml"], 2, "cannot be written"),
        ([*QWEN, "--", "--speculative-config", "nonsense"], 2, "no JSON object"),
    ],
)
def test_mistakes_end_with_one_line_and_a_next_step(arguments: list[str], code: int, reason: str) -> None:
    done = recommend(*arguments)

    assert done.returncode == code
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    drafter = tmp_path / "a\x1b[31m[red]\nb: c"
    drafter.mkdir()
    (drafter / "config.json").write_bytes((DFLASH / "config.json").read_bytes())
    file = tmp_path / "serve.yaml"

    done = recommend(str(TARGET), "--draft", str(drafter), "--config", str(file))

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert yaml.safe_load(file.read_text())["speculative-config"]["model"] == str(drafter)


@pytest.mark.parametrize(
    ("example", "said"), [("healthy", "num_speculative_tokens 3"), ("collapsed", "counted-acceptance-is-broken")]
)
def test_counted_acceptance_is_a_profile_too(tmp_path: Path, example: str, said: str) -> None:
    saved = tmp_path / "saved.json"
    command = [TOOL, "acceptance", "--example", example, "--json", "--fail-on", "never"]
    saved.write_text(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)

    done = recommend(str(TARGET), "--draft", str(DFLASH), "--profile", str(saved))

    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_a_profile_that_advises_against_drafting_is_not_answered_with_a_plain_serve_it(tmp_path: Path) -> None:
    results = tmp_path / "tune.jsonl"
    best = (BestCount(1, 0, 45.0, 45.0, certain=False),)
    held = MeasuredProfile(str(TARGET), str(DFLASH), "vllm 0.32.0", "CPU", "2026-11-30", best, None)
    question = dataclasses.asdict(QUESTION)
    lines = [{"dspark_tool_tune": 1, "by": "0", "asked": question}, {"profile": dataclasses.asdict(held)}]
    results.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    done = recommend(str(TARGET), "--draft", str(DFLASH), "--profile", str(results))

    assert done.returncode == 0, done.stderr
    assert "speculation-does-not-pay" in done.stdout
    assert done.stdout.splitlines()[-2] == "serve it with the drafter all the same"


def test_a_profile_of_another_kind_is_told_what_it_was_taken_for(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("nothing of vLLM's\n")

    done = recommend(str(TARGET), "--draft", str(DFLASH), "--profile", str(notes))

    assert done.returncode == 4
    assert "is no results file of tune" in done.stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    "vllm_args",
    [
        ["--speculative-config", json.dumps({"hf_token": SECRET})],
        ["--speculative-config", json.dumps({"draft_load_config": {"token": SECRET}})],
        ["--kv-transfer-config", json.dumps({"kv_connector": "X", "password": SECRET})],
        ["--port", "8001", "--api-key", SECRET, SECRET],
        ["--tokenizer", f"https://me:{SECRET}@hub/x"],
    ],
)
def test_no_secret_is_shown_and_no_mask_is_to_be_pasted(tmp_path: Path, vllm_args: list[str], form: list[str]) -> None:
    file = tmp_path / "serve.yaml"

    done = recommend(str(TARGET), "--draft", str(DFLASH), "--config", str(file), *form, "--", *vllm_args)

    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr + file.read_text()
    assert "***" not in str(yaml.safe_load(file.read_text()))
    assert "is secret and left out" in file.read_text()
    if not form:
        command = done.stdout.rstrip().splitlines()[-1]
        assert "***" not in command
        assert ("--port 8001" in command) == ("--port" in vllm_args)


def test_a_target_with_a_password_is_shown_without_it() -> None:
    done = recommend(f"https://me:{SECRET}@hub/target", "--draft", str(DFLASH))

    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("target", ["no/such/folder", "./nothing", "/nothing"])
def test_a_target_that_is_not_there_is_told(target: str) -> None:
    done = recommend(target, "--draft", str(DFLASH))

    assert done.returncode == 2
    assert f"no model folder {target}" in done.stderr


def test_a_name_with_a_line_break_can_be_pasted(tmp_path: Path) -> None:
    drafter = tmp_path / "it's\na \x1b[31m\u202ename"
    drafter.mkdir()
    (drafter / "config.json").write_bytes((DFLASH / "config.json").read_bytes())

    done = recommend(str(TARGET), "--draft", str(drafter))

    pasted = done.stdout.rstrip().splitlines()[-1].removeprefix("dspark-tool ")
    told = subprocess.run(["bash", "-c", f"printf '%s|' {pasted}"], capture_output=True, text=True, check=True)
    assert told.stdout.split("|")[:4] == ["serve", str(TARGET), "--draft", str(drafter)]
