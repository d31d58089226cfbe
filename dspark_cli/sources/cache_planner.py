"""Ask vLLM's planner for the KV cache of one or several deployments; its import is paid once for all of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.gpu_kind import GpuKind
from dspark_cli.sources.vllm_child import ask_vllm
from dspark_cli.sources.vllm_install import VllmInstall

LAYOUT, GROUP_WIDTH = "layout", "group-width"
LAYOUT_VARIABLE = "VLLM_KV_CACHE_LAYOUT"


@dataclass(frozen=True)
class Scenario:
    """A deployment to plan for; `name` is for the reader."""

    name: str
    vllm_args: tuple[str, ...]
    """As `vllm serve` takes them, the model among them."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that the server would be started with."""
    drafter: bool = True
    """False: without the drafter that the arguments name."""
    group_width: int | None = None
    """Layers a group, in place of vLLM's own choice."""
    every: tuple[str, ...] = ()
    """LAYOUT, GROUP_WIDTH: one plan for each that there is."""
    exact_options: tuple[str, ...] = ()
    """Options that vLLM must know by this very name, for it would take an abbreviation for another one."""
    gpu_memory_bytes: int | None = None
    """All memory of one GPU. What weights leave of the utilised part is planned for where the arguments give no KV
    memory."""


@dataclass(frozen=True)
class PlannedScenario:
    """Exactly one of `plan` and `refused` (vLLM's words) is there."""

    scenario: Scenario
    plan: CachePlan | None
    refused: str | None


@dataclass(frozen=True)
class StandIn:
    """A platform to plan for in place of the one that vLLM would run on here; cuda needs a `gpu`."""

    platform: str
    gpu: GpuKind | None = None


def plan_scenarios(
    scenarios: Sequence[Scenario], install: VllmInstall, stand_in: StandIn | None = None
) -> list[PlannedScenario]:
    """One answer a scenario, in order, and one for each alternative of those that ask for every one of something. A
    refused one does not stop the others.

    Raises:
        NotFit: the planning process failed as a whole.
    """
    request: dict[str, Any] = {
        "stand_in": stand_in and asdict(stand_in),
        "scenarios": [asdict(scenario) for scenario in scenarios],
    }
    answers = ask_vllm("plan_cache", request, install, stand_in=stand_in is not None)["answers"]
    return [_planned(answer) for answer in answers]


def _planned(answer: dict[str, Any]) -> PlannedScenario:
    planned, plan = answer["scenario"], answer.get("plan")
    lists = {name: tuple(planned[name]) for name in ("vllm_args", "every", "exact_options")}
    environment = tuple((str(variable), str(value)) for variable, value in planned["environment"])
    scenario = Scenario(**{**planned, **lists, "environment": environment})
    return PlannedScenario(scenario, plan and CachePlan.from_answer(plan), answer.get("refused"))
