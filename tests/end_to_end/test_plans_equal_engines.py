"""Plans beside real engines of the same arguments: equal in every figure that the engine has."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.check import CacheEvidence, check_cache
from dspark_cli.findings.finding import Severity
from dspark_cli.sources.cache_planner import Scenario, plan_scenarios
from dspark_cli.sources.gpus import read_gpus
from dspark_cli.sources.vllm_install import find_vllm
from tests.live_server import offline_environment
from tests.planning.geometries import write_geometry

pytestmark = pytest.mark.timeout(900)

Case = tuple[str, str | None, tuple[str, ...]]
"""Target, drafter, and what else the server is started with."""

GPUS = read_gpus()
EVERYWHERE: list[Case] = [
    ("target", None, ()),
    ("target", "dflash", ()),
    ("target", "dflash-sliding", ()),
    ("target", "dflash-odd", ()),
    ("target", "dflash-wide", ()),
    ("target-alternating", None, ()),
    ("target-alternating", "dflash-odd", ()),
    ("target-mostly-sliding", "dflash", ()),
]
SPLIT_DRAFT: Case = ("target-mostly-sliding", "dflash-sliding", ())
"""Model runner V1 refuses it, once the engine has planned."""
ON_A_GPU: list[Case] = [
    ("target", "dspark", ()),
    ("target", "dflash-mixed", ()),
    ("target", "dspark-mixed", ("--block-size", "32")),
    SPLIT_DRAFT,
]
ON_TWO_GPUS: list[Case] = [
    ("target", "dflash", ("--tensor-parallel-size", "2")),
    ("target", "dspark", ("--pipeline-parallel-size", "2")),
    ("target-one-head", "dflash", ("--tensor-parallel-size", "2", "--decode-context-parallel-size", "2")),
    ("target-one-head", "dflash-wide", ("--tensor-parallel-size", "2")),
]
CASES = [*EVERYWHERE, *(ON_A_GPU if GPUS else []), *(ON_TWO_GPUS if len(GPUS) > 1 else [])]
NAMES = ["+".join(filter(None, (target, drafter, *extra))) for target, drafter, extra in CASES]


def arguments(case: Case, folder: Path) -> tuple[str, ...]:
    target, drafter, extra = case
    sizes = ("--kv-cache-memory-bytes", str(1 << 28), "--max-model-len", "4096", *extra)
    model = ("--model", str(write_geometry(target, folder)), *sizes)
    if drafter is None:
        return model
    method = "dspark" if drafter.startswith("dspark") else "dflash"
    speculation = {"method": method, "model": str(write_geometry(drafter, folder)), "num_speculative_tokens": 7}
    return (*model, "--speculative-config", json.dumps(speculation))


@pytest.fixture(scope="module")
def deployments(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, ...]]:
    folder = tmp_path_factory.mktemp("geometries")
    return [arguments(case, folder) for case in [*CASES, SPLIT_DRAFT]]


@pytest.fixture(scope="module")
def engines(deployments: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.planning.engines"],
        input=json.dumps(deployments),
        capture_output=True,
        text=True,
        timeout=500,
        env={**offline_environment(), **find_vllm().added_environment(), "PYTHONPATH": _python_path()},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    plans: list[dict[str, Any]] = json.loads(done.stdout)
    return plans


@pytest.fixture(scope="module")
def plans(deployments: list[tuple[str, ...]]) -> list[CachePlan]:
    planned = plan_scenarios([Scenario("engine", vllm_args) for vllm_args in deployments], find_vllm())
    assert all(one.plan for one in planned), [one.refused for one in planned]
    return [one.plan for one in planned if one.plan]


def _python_path() -> str:
    repository = str(Path(__file__).parents[2])
    added = find_vllm().added_environment().get("PYTHONPATH") or os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, [repository, added]))


@pytest.mark.parametrize("at", range(len(CASES)), ids=NAMES)
def test_the_plan_is_the_engine_s_cache(at: int, engines: list[dict[str, Any]], plans: list[CachePlan]) -> None:
    engine, plan = engines[at], plans[at]

    assert (plan.blocks, plan.kv_tokens, plan.full_sequences) == (
        engine["blocks"],
        engine["kv_tokens"],
        engine["full_sequences"],
    )
    assert (plan.layout, plan.policy.hit_alignment_tokens) == (engine["layout"], engine["hit_alignment_tokens"])
    assert engine["pool_bytes"] // engine["blocks"] in {
        plan.pool_bytes_per_block,
        *(stage.pool_bytes_per_block for stage in plan.stages),
    }
    planned = [_as_the_engine_says(group) for group in plan.groups]
    if not engine["every_layer"]:  # the scheduler of several workers has one worker's layers
        planned = [{**group, "layers": [], "block_bytes": 0} for group in planned]
        engine["groups"] = [{**group, "layers": [], "block_bytes": 0} for group in engine["groups"]]
    assert planned == engine["groups"]


def _as_the_engine_says(group: KVCacheGroup) -> dict[str, Any]:
    return {
        "layers": list(group.layers),
        "block_tokens": group.block_tokens,
        "block_bytes": group.block_bytes,
        "draft_flag": group.draft_flag,
    }


@pytest.mark.skipif(bool(GPUS), reason="a GPU has model runner V2")
def test_what_the_first_model_runner_refuses_is_found_beforehand(
    engines: list[dict[str, Any]], plans: list[CachePlan]
) -> None:
    checked = check_cache(CacheEvidence(plans[len(CASES)], None, "0.32"))

    assert "All drafting layers should belong to the same kv cache group" in engines[len(CASES)]["refused"]
    assert [finding.id for finding in checked.findings if finding.severity is Severity.ERROR] == ["draft-layers-split"]


def test_no_plan_of_an_engine_that_starts_has_an_error(plans: list[CachePlan]) -> None:
    for plan in plans[: len(CASES)]:
        checked = check_cache(CacheEvidence(plan, None, "0.32"))
        assert all(finding.severity < Severity.ERROR for finding in checked.findings)


def test_the_geometries_differ(plans: list[CachePlan]) -> None:
    """Else equal plans would say little: one group and several, one page size and two, windows and none."""
    assert {len(plan.groups) for plan in plans} >= {1, 2, 3}
    assert {group.role for plan in plans for group in plan.groups} == {"target", "draft", "shared"}
    assert any(group.window for plan in plans for group in plan.groups)
    assert any(len({kind.page_bytes for kind in plan.layer_kinds}) == 2 for plan in plans)
