"""Plan a deployment, its target alone and what is to be compared, and judge the result."""

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_cli.errors import BadInput
from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.cache_summary import CacheSummary, WorkerCache
from dspark_cli.facts.gpu_kind import DEFAULT_GPU, GpuKind, gpu_kind
from dspark_cli.findings.cache.check import CacheEvidence, check_cache
from dspark_cli.planning.cache_report import CacheReport, ServerCacheReport, WhatIf, by_capacity
from dspark_cli.planning.deployment import Deployment
from dspark_cli.planning.what_if import what_if_scenarios
from dspark_cli.sources.cache_planner import PlannedScenario, StandIn, plan_scenarios
from dspark_cli.sources.vllm_advice import next_step_for
from dspark_cli.sources.vllm_install import VllmInstall, release_of


@dataclass(frozen=True)
class Machine:
    """What the plan is for; no `stand_in`: what vLLM runs on here."""

    stand_in: StandIn | None

    @classmethod
    def asked_for(cls, platform: str, gpu: str | None, here: str | None) -> "Machine":
        """`here` is the platform that vLLM would run on without being asked; None where it could not run.

        Raises:
            BadInput: a platform or GPU that nobody knows, or a GPU of the CPU.
        """
        if platform not in ("auto", "cuda", "cpu"):
            raise BadInput(f"--platform {platform!r} is not known", "give auto, cuda or cpu")
        if gpu is not None and platform == "cpu":
            raise BadInput("--gpu names a GPU, and --platform is cpu", "leave one of them out")
        if gpu is not None:
            return cls(StandIn("cuda", gpu_kind(gpu)))
        if here is not None and platform in ("auto", here):
            return cls(None)
        return cls(StandIn("cpu") if platform == "cpu" else StandIn("cuda", gpu_kind(DEFAULT_GPU)))

    @property
    def gpu(self) -> GpuKind | None:
        return self.stand_in.gpu if self.stand_in else None

    def described(self, plan: CachePlan) -> str:
        if self.stand_in is None:
            return plan.platform
        return f"{plan.platform} ({self.gpu.device_name})" if self.gpu else f"{plan.platform} (not this machine's)"


def inspect_deployment(
    asked: Deployment, machine: Machine, changes: Sequence[str], install: VllmInstall
) -> CacheReport:
    """Everything in one planning process.

    Raises:
        BadInput: vLLM refuses the deployment itself; a refused change is part of the result.
        NotFit: planning failed.
    """
    if machine.gpu is not None:
        asked = asked.on_gpu(machine.gpu)
    compared = what_if_scenarios(asked, changes)
    alone = [asked.without_drafter().scenario("no-drafter")] if asked.may_have_drafter else []
    planned = plan_scenarios([asked.scenario("as asked"), *alone, *compared], install, machine.stand_in)
    plan = _plan_or_refusal(planned[0])
    plan_alone = planned[1].plan if alone and plan.policy.method is not None else None
    checked = check_cache(CacheEvidence(plan, plan_alone, install.release))
    return CacheReport(
        vllm=f"{install.distribution} {install.version}",
        made_for=machine.described(plan),
        plan=plan,
        bytes=where_bytes_go(plan),
        alone=plan_alone,
        memory_estimated=plan.memory_estimated,
        findings=checked.findings,
        not_checked=checked.not_checked,
        what_if=by_capacity([_compared(one) for one in planned[1 + len(alone) :]], plan),
    )


def judge_server(summary: CacheSummary) -> ServerCacheReport:
    """What the engine holds, judged as a plan is; what only a plan knows is not checked."""
    return ServerCacheReport(summary, tuple(_report_of_engine(worker, summary) for worker in summary.workers))


def _report_of_engine(worker: WorkerCache, summary: CacheSummary) -> CacheReport:
    workers = summary.draft_context.workers if summary.draft_context else ()
    told = {backend for each in workers for backend in each.draft_backends}
    checked = check_cache(
        CacheEvidence(worker.plan, None, summary.vllm and release_of(summary.vllm), tuple(sorted(told)))
    )
    return CacheReport(
        vllm=f"vLLM {summary.vllm}" if summary.vllm else "vLLM",
        made_for=f"{worker.plan.platform} of {summary.where} ({', '.join(worker.workers)})",
        plan=worker.plan,
        bytes=where_bytes_go(worker.plan),
        alone=None,
        memory_estimated=False,
        findings=checked.findings,
        not_checked=checked.not_checked,
    )


def _plan_or_refusal(planned: PlannedScenario) -> CachePlan:
    if planned.plan is None:
        refusal = planned.refused or "vLLM gave no plan"
        raise BadInput(refusal, next_step_for(refusal) or "change the arguments; vLLM's own: vllm serve --help=all")
    return planned.plan


def _compared(planned: PlannedScenario) -> WhatIf:
    return WhatIf(planned.scenario.name, planned.plan, planned.refused)
