"""The recommended draft attention, beside what vLLM's own selector takes for that GPU, which is not here."""

import pytest

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.device import Device
from dspark_cli.facts.drafter import drafter_facts
from dspark_cli.facts.gpu_kind import GpuKind, gpu_kind
from dspark_cli.facts.target import target_facts
from dspark_cli.patches.found_vllm import installed_vllm
from dspark_cli.patches.patch import Place
from dspark_cli.planning.deployment import deployment
from dspark_cli.recommending.gather import read_vllm
from dspark_cli.recommending.given_options import GivenOptions
from dspark_cli.recommending.recommend import recommend
from dspark_cli.recommending.situation import Situation, Workload
from dspark_cli.serving.speculative import speculate
from dspark_cli.sources.cache_planner import StandIn, plan_scenarios
from dspark_cli.sources.checkpoint import Method, read_checkpoint
from dspark_cli.sources.vllm_install import find_vllm
from tests.paths import TESTS

pytestmark = pytest.mark.timeout(300)

PUBLIC = TESTS.parent / "benchmarks" / "public_models"
TARGET, DRAFTER = str(PUBLIC / "qwen3-8b"), str(PUBLIC / "qwen3-8b-dflash-b16")
MEMORY = ("--kv-cache-memory-bytes", str(4 << 30), "--max-model-len", "8192")
CACHES: tuple[tuple[str, ...], ...] = ((), ("--kv-cache-dtype", "fp8"))


@pytest.mark.parametrize("gpu", ["l40s", "h200", "b200", "rtx-pro-6000"])
def test_vllm_takes_the_recommended_backend_and_none_worse_by_itself(gpu: str) -> None:
    install, kind = find_vllm(), gpu_kind(gpu)
    recommended = [_recommended_backend(kind, cache) for cache in CACHES]
    asked = [deployment(TARGET, speculate(DRAFTER, None, None), [*MEMORY, *cache]) for cache in CACHES]
    scenarios = [
        (one if backend is None else one.with_speculation({"attention_backend": backend})).scenario(str(number))
        for number, (one, backend) in enumerate(zip(asked, recommended, strict=True))
    ]

    planned = plan_scenarios(scenarios, install, StandIn("cuda", kind))

    for answer, backend in zip(planned, recommended, strict=True):
        assert answer.plan is not None, answer.refused
        taken = _draft_backends(answer.plan)
        assert len(taken) == 1
        assert backend is None or taken == {backend}


def _recommended_backend(kind: GpuKind, vllm_args: tuple[str, ...]) -> str | None:
    install = find_vllm()
    situation = Situation(
        target=target_facts(read_checkpoint(TARGET)),
        drafter=drafter_facts(read_checkpoint(DRAFTER), Method.DFLASH, 15),
        method_evidence="its architecture",
        device=Device(kind.device_name, 1, kind.compute_capability, kind.memory_bytes),
        vllm=read_vllm(installed_vllm(install), install.distribution),
        runner=Place.RUNNER_V2,
        workload=Workload(),
        policy="validity",
        options=GivenOptions(vllm_args),
    )
    told = recommend(situation, vllm_args).speculative_config.get("attention_backend")
    return None if told is None else str(told)


def _draft_backends(plan: CachePlan) -> set[str]:
    return {layers.backend for layers in plan.layer_kinds if layers.role != "target"}
