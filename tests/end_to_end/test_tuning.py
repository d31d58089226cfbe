"""`dspark-tool tune` on a real vLLM: killed in the middle, resumed, and what it then says."""

import json
import subprocess
from pathlib import Path

import pytest

from dspark_cli.sources.tuning_file import read_profile
from tests.live_server import ENGINE_ARGS, TOOL, offline_environment
from tests.paths import DFLASH, TARGET
from tests.unit.test_campaign import assert_nothing_runs_for

pytestmark = pytest.mark.timeout(900)


def tune(results: Path) -> list[str]:
    """Two servers, the least that a tune can be; their model's name tells them from others."""
    few = [
        *("--tokens", "3", "--concurrency", "1,2", "--no-control"),
        *("--prompts", "10", "--output-tokens", "32", "--prompt-tokens", "128"),
    ]
    vllm = ["--served-model-name", f"tiny-{results.parent.name}", *ENGINE_ARGS]
    command = [TOOL, "tune", str(TARGET), "--draft", str(DFLASH), *few]
    return [*command, "--results", str(results), "--json", "--", *vllm]


def test_a_killed_tune_leaves_no_server_and_goes_on_from_what_it_measured(tmp_path: Path) -> None:
    results = tmp_path / "tune.jsonl"
    with subprocess.Popen(tune(results), stderr=subprocess.PIPE, text=True, env=offline_environment()) as killed:
        assert killed.stderr is not None
        for line in killed.stderr:
            if "1 at a time:" in line:  # measured under the first load, and not yet under the second
                break
        killed.kill()
    assert_nothing_runs_for(f"tiny-{tmp_path.name}")
    before = results.read_text()
    rows_before = len(before.splitlines()) - 1  # the first line says what was asked

    done = subprocess.run(tune(results), capture_output=True, text=True, timeout=800, env=offline_environment())

    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (report["reused"], report["measured"]) == (rows_before, 4 - rows_before)
    assert 1 <= rows_before < 4
    assert results.read_text().startswith(before)
    rows = {(row["candidate"]["tokens"], row["concurrency"]): row for row in report["rows"]}
    assert set(rows) == {(tokens, at) for tokens in (0, 3) for at in (1, 2)}
    for (tokens, _), row in rows.items():
        assert row["requests"] == 10
        assert len(row["rates"]) == tokens
        assert row["tpot_ms"]["p50"] > 0
        assert (row["acceptance_length"] > 1) is (tokens > 0)
    assert not [
        finding for finding in report["findings"] if finding["id"] in ("prefixes-were-restored", "candidate-failed")
    ]
    assert "Traceback" not in done.stderr
    profile = read_profile(results)
    assert [best.concurrency for best in profile.best] == [1, 2]
    assert profile.target == str(TARGET)
    assert f"--profile {results}" in report["recommend"]
