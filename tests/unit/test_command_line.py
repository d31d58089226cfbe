"""The command line as a user meets it: one clear line, the right exit code, no traceback, nothing heavy at start-up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_server import TOOL, free_port, offline_environment
from tests.paths import DFLASH, TARGET

SERVE = ("serve", str(TARGET), "--draft", str(DFLASH))
TUNE = ("tune", str(TARGET), "--draft", str(DFLASH))


def dspark_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=120, env=offline_environment())


@pytest.mark.parametrize(
    "command",
    ["serve", "acceptance", "inspect-cache", "probe", "stress-shift", "patches", "doctor", "recommend", "tune"],
)
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = dspark_tool(command, "--help")

    assert done.returncode == 0
    assert f"dspark-tool {command}" in done.stdout.partition("Options:")[0].partition("\n")[2]


def test_start_up_imports_nothing_heavy() -> None:
    heavy = ("torch", "triton", "vllm", "httpx", "rich", "pydantic", "numpy", "scipy", "matplotlib", "plotext")
    program = f"import sys, dspark_cli.main; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["serve", "/no/model", "--draft", str(DFLASH), "--dry-run"], 2, "no model folder /no/model"),
        (["serve", str(TARGET), "--draft", "/no/drafter", "--dry-run"], 2, "no model folder /no/drafter"),
        (["serve", str(TARGET), "--draft", str(TARGET), "--dry-run"], 2, "no DFlash or DSpark drafter"),
        (
            [*SERVE, "--method", "mtp", "--dry-run"],
            2,
            "neither dflash nor dspark",
        ),
        ([*SERVE, "--tokens", "0", "--dry-run"], 2, "--tokens"),
        ([*SERVE, "--draft-context", "some", "--dry-run"], 2, "is no draft context policy"),
        ([*SERVE, "--without", "some", "--dry-run"], 2, "there is no patch 'some'"),
        ([*SERVE, "--log-file", "/proc/no/log"], 3, "cannot be written"),
        (["acceptance", "--url", "http://127.0.0.1:1"], 3, "no server answers"),
        (["acceptance", "--url", "nonsense"], 2, "not a server's URL"),
        (["acceptance", "--url", "http://127.0.0.1:1", "--interval", "-1"], 2, "more than 0 seconds"),
        (["acceptance", "--url", "http://127.0.0.1:1", "--interval", "nan"], 2, "more than 0 seconds"),
        (["acceptance"], 2, "--url"),
        (["acceptance", "diff", "/no/a", "/no/b"], 2, "/no/a cannot be read"),
        (["probe", "--url", "http://127.0.0.1:1"], 3, "no server answers"),
        (["probe", "--url", "nonsense"], 2, "not a server's URL"),
        (["probe"], 2, "--url"),
        (["inspect-cache", "--model", "/no/model"], 2, "no model folder /no/model"),
        (["inspect-cache", "--model", str(TARGET), "--kv-memory", "much"], 2, "not a memory size"),
        (["inspect-cache", "--model", str(TARGET), "--kv-memory", "-1GiB"], 2, "not a memory size"),
        ([*TUNE, "--tokens", "0-3", "--dry-run"], 2, "no numbers from 1 to"),
        ([*TUNE, "--concurrency", "many", "--dry-run"], 2, "no numbers from 1 to"),
        ([*TUNE, "--also", "--port=1,2", "--dry-run"], 2, "--port does not go with tune"),
        ([*TUNE, "--also", "--speculative-config=A,B", "--dry-run"], 2, "would be a whole configuration"),
        ([*TUNE, "--also", "model=a", "--dry-run"], 2, "what tune sets itself"),
        ([*TUNE, "--also", "max_num_seqs=4,16", "--dry-run"], 2, "--also --max-num-seqs=4,16"),
        ([*TUNE, "--load", "wrk", "--dry-run"], 2, "is no load"),
        ([*TUNE, "--load", "guidellm", "--dry-run"], 3, "guidellm is not installed"),
        ([*TUNE, "--tpot-ms", "-1", "--dry-run"], 2, "must be more than 0"),
        ([*TUNE, "--max-minutes", "nan", "--dry-run"], 2, "more than 0 seconds"),
        ([*TUNE, "--prompt-file", "/no/prompts", "--dry-run"], 2, "/no/prompts cannot be read"),
        ([*TUNE, "--dry-run", "--", "--port", "8000"], 2, "--port does not go with tune"),
        ([*TUNE, "--results", str(TARGET / "config.json")], 2, "not the results file of a tune"),
        ([*TUNE, "--results", "/proc/no/r.jsonl"], 3, "cannot be written"),
        (["tune", "/no/model", "--draft", str(DFLASH), "--dry-run"], 2, "no model folder /no/model"),
        ([*SERVE, "--port", "8001"], 2, "Options of vllm serve go behind a lone --"),
        ([*TUNE, "--max-num-seqs", "8"], 2, "Options of vllm serve go behind a lone --"),
        (["recommend", str(TARGET), "-tp", "2"], 2, "Options of vllm serve go behind a lone --"),
        (["no-such-command"], 2, "no-such-command"),
    ],
)
def test_bad_input_ends_in_one_clear_line(arguments: list[str], code: int, reason: str) -> None:
    done = dspark_tool(*arguments)

    assert done.returncode == code
    assert reason in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("setting", ["attention_backend=A,B", "disable_eagle_block_drop=true", "--max-num-seqs=4,16"])
def test_a_tune_takes_settings_that_vllm_has_and_names_them_in_its_plan(setting: str) -> None:
    done = dspark_tool(*TUNE, "--tokens", "1", "--also", setting, "--dry-run")

    assert done.returncode == 0, done.stderr
    assert f"candidates (tokens, {setting.partition('=')[0]}): no speculation" in done.stdout


def test_no_summary_of_a_command_is_cut_off() -> None:
    done = dspark_tool("--help")

    assert "..." not in done.stdout.partition("Commands:")[2]


def test_an_error_in_json_is_one_document() -> None:
    done = dspark_tool("acceptance", "--url", "http://127.0.0.1:1", "--json")

    error = json.loads(done.stdout)
    assert error["exit_code"] == done.returncode == 3
    assert error["error"] in done.stderr
    assert error["next"] in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_narrow_encoding_costs_characters_not_the_command(encoding: str) -> None:
    environment = {**offline_environment(), "PYTHONIOENCODING": encoding}
    command = [TOOL, *SERVE, "--dry-run", "--", "--served-model-name", "\u2588"]

    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)

    assert done.returncode == 0
    assert b"num_speculative_tokens" in done.stdout


def test_a_result_that_cannot_be_written_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([TOOL, *SERVE, "--dry-run", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)

    assert done.returncode == 3
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_does_not_change_the_exit_code() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" "$@" | head -c 0; exit ${PIPESTATUS[0]}', TOOL, *SERVE, "--dry-run", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_name_cannot_forge_lines() -> None:
    done = dspark_tool("serve", str(TARGET), "--draft", "a\nnext: do something foolish", "--dry-run")

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2


def test_a_bug_of_the_tool_has_its_own_exit_code() -> None:
    program = "import dspark_cli.main as m; m.app = lambda: 1 / 0; m.main()"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.returncode == 70
    assert "dspark-tool itself failed (ZeroDivisionError: division by zero)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hostile_checkpoint_cannot_drive_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["\x1b[31m[bold]evil[/bold]\x07"]}))

    done = dspark_tool("serve", str(TARGET), "--draft", str(folder), "--dry-run")

    assert done.returncode == 2
    assert "[bold]evil[/bold]" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


def test_a_dry_run_prints_command_and_config_and_stops() -> None:
    done = dspark_tool(*SERVE, "--dry-run", "--", "--port", "1", "--api-key", "secret")

    assert done.returncode == 0
    assert "serve" in done.stdout
    assert '"num_speculative_tokens": 7' in done.stdout
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_secret_inside_the_speculative_config_is_masked(options: list[str]) -> None:
    done = dspark_tool(*SERVE, "--dry-run", *options, "--", "--speculative-config", '{"x": {"api_key": "secret"}}')

    assert done.returncode == 0
    assert '"api_key": "***"' in done.stdout
    assert '"secret"' not in done.stdout + done.stderr


def test_a_dry_run_in_json_is_one_document() -> None:
    done = dspark_tool(*SERVE, "--dry-run", "--json", "--", "--api-key", "secret")

    plan = json.loads(done.stdout)
    assert plan["speculative_config"] == {"method": "dflash", "model": str(DFLASH), "num_speculative_tokens": 7}
    assert plan["argv"][1:6] == ["-P", "-m", "vllm.entrypoints.cli.main", "serve", str(TARGET)]
    assert "secret" not in done.stdout


def test_another_server_is_no_vllm() -> None:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        for _ in range(50):
            done = dspark_tool("acceptance", "--url", f"http://127.0.0.1:{port}")
            if "refused" not in done.stderr:
                break
    finally:
        server.terminate()
        server.communicate()

    assert done.returncode == 3
    assert "404" in done.stderr


def test_a_closed_stdout_is_called_so() -> None:
    command = f"exec {TOOL} acceptance --example healthy --json >&-"

    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60)

    assert done.returncode == 3
    assert "stdout is closed" in done.stderr
