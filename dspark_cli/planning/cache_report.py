"""What `inspect-cache` found out about one deployment."""

from dataclasses import dataclass

from dspark_cli.facts.cache_bytes import CacheBytes
from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.cache_summary import CacheSummary
from dspark_cli.findings.finding import Finding, NotChecked


@dataclass(frozen=True)
class WhatIf:
    """The same deployment with a change; exactly one of `plan` and `refused` (vLLM's words) is there."""

    change: str
    plan: CachePlan | None
    refused: str | None


@dataclass(frozen=True)
class CacheReport:
    vllm: str
    made_for: str
    """Where the plan holds: a platform, with the GPU that another machine stands in for."""
    plan: CachePlan
    bytes: CacheBytes
    alone: CachePlan | None
    """The target without its drafter."""
    memory_estimated: bool
    """Whether `plan.memory_bytes` is what weights leave of a GPU: an upper bound."""
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    what_if: tuple[WhatIf, ...] = ()
    """Best capacity first, what is refused last."""


@dataclass(frozen=True)
class ServerCacheReport:
    """A running server's, or a log's: a report for each plan that the engine holds, where it told them."""

    summary: CacheSummary
    reports: tuple[CacheReport, ...]


def by_capacity(compared: list[WhatIf], asked: CachePlan) -> tuple[WhatIf, ...]:
    return tuple(sorted(compared, key=lambda one: -capacity(one.plan, asked) if one.plan else 1.0))


def capacity(plan: CachePlan, asked: CachePlan) -> float:
    """Tokens, or tokens for each GiB where the plan that was asked for, or this one, has no memory size."""
    if asked.kv_tokens is None or plan.kv_tokens is None:
        return plan.tokens_per_gib
    return float(plan.kv_tokens)
