"""A derived layer is worth what it equals: every one is compared with the layer that vLLM's own code builds."""

import dataclasses
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.facts.gpu_kind import GpuKind, gpu_kind
from dspark_cli.sources.vllm_install import find_vllm
from tests.planning.architectures import ARCHITECTURES, DRAFTERS
from tests.planning.cases import PAIRS, cases, not_derivable

REPOSITORY = Path(__file__).parents[2]
GPUS: dict[str, GpuKind | None] = {"cpu": None, "h100": gpu_kind("h100")}
LONGEST_S = 240
NAMES = {where: [case["name"] for case in cases(None, gpu is not None)] for where, gpu in GPUS.items()}
REFUSED = list(not_derivable(None))

Answers = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Platform -> the comparison's answer: a process has one platform, and vLLM's import is what costs."""
    folders = {where: tmp_path_factory.mktemp(where) for where in GPUS}
    with ThreadPoolExecutor() as pool:
        return dict(zip(GPUS, pool.map(_compare, GPUS, folders.values()), strict=True))


def _compare(where: str, folder: Path) -> dict[str, Any]:
    gpu = GPUS[where]
    request = {
        "gpu": dataclasses.asdict(gpu) if gpu else None,
        "compare": cases(folder, gpu is not None),
        "derive": list(not_derivable(folder).values()),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.planning.compare_specs"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **_environment(where, folder)},
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return {part: {result["name"]: result for result in answer[part]} for part in answer}


def _environment(where: str, folder: Path) -> dict[str, str]:
    return {
        **find_vllm().added_environment(stand_in=where != "cpu"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": str(folder / "vllm"),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(("where", "name"), [(where, name) for where in GPUS for name in NAMES[where]])
def test_derived_layers_equal_those_that_vllm_builds(answers: Answers, where: str, name: str) -> None:
    result = answers[where]["compare"][name]
    built, derived = result["built"], result["derived"]

    assert (built["error"], derived["error"]) == (None, None)
    assert built["specs"]
    assert list(derived["specs"]) == list(built["specs"])
    assert result["unlike"] == []
    assert derived == built


@pytest.mark.parametrize("where", GPUS)
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_known_is_refused_by_name(answers: Answers, where: str, what: str) -> None:
    result = answers[where]["derive"][_name_of(what)]

    assert result["specs"] == {}
    assert result["error"].startswith("UnknownLayerKind: ")
    assert what in result["error"]
    assert "cannot be derived" in result["error"]


def _name_of(what: str) -> str:
    return str(not_derivable(None)[what]["name"])


def test_a_layer_that_were_derived_wrongly_would_be_seen(answers: Answers) -> None:
    compared = answers["h100"]["compare"]
    llama = compared["llama"]["derived"]["specs"]
    sliding = compared["llama-sliding-layers"]["built"]["specs"]

    unlike = [name for name in sliding if llama[name] != sliding[name]]

    assert unlike == ["model.layers.0.self_attn.attn", "model.layers.2.self_attn.attn"]


def test_layers_that_read_anothers_cache_stand_in_the_context_without_a_spec(answers: Answers) -> None:
    derived = answers["h100"]["compare"]["gemma4-shared"]["derived"]

    without_spec = set(derived["backends"]) - set(derived["specs"])

    assert without_spec == {"model.layers.4.self_attn.attn", "model.layers.5.self_attn.attn"}
    assert derived["backends"]["model.layers.4.self_attn.attn"].endswith(" of model.layers.2.self_attn.attn")


def test_drafters_continue_the_targets_numbering(answers: Answers) -> None:
    names = list(answers["h100"]["compare"]["qwen3 + dspark"]["derived"]["specs"])

    assert names[ARCHITECTURES["qwen3"]["num_hidden_layers"] :] == [
        "model.layers.4.self_attn.attn",
        "model.layers.5.self_attn.attn",
    ]


def test_pipeline_stages_hold_all_layers_between_them(answers: Answers) -> None:
    compared = answers["h100"]["compare"]
    stages = [compared[f"gemma3 pipeline_parallel_size=2 stage {stage}"]["derived"]["specs"] for stage in (0, 1)]

    assert all(stages)
    assert [*stages[0], *stages[1]] == list(compared["gemma3"]["derived"]["specs"])


def test_every_architecture_and_drafter_is_compared() -> None:
    compared = [name.split()[0] for name in NAMES["h100"]]

    assert set(compared) == set(ARCHITECTURES)
    assert {drafter for _, drafter in PAIRS} == set(DRAFTERS)
