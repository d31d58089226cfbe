"""The KV cache of a running server, from the best source that it has."""

from dataclasses import replace

from dspark_cli.errors import NotFit
from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.cache_summary import CacheSource, CacheSummary, Unknown, WorkerCache
from dspark_cli.sources.cache_metrics import summary_of_metrics
from dspark_cli.sources.server_metrics import scrape, without_credentials
from dspark_cli.sources.server_status import (
    PLAN_WITHOUT_SERVER,
    START_WITH_PLUGIN,
    KeyWanted,
    NoPlugin,
    ServerStatus,
    WorkerStatus,
    api_key,
    read_status,
)


def read_running_cache(url: str, timeout_s: float = 10.0, api_key_env: str | None = None) -> CacheSummary:
    """The exact plans where the status plugin tells them, else what /metrics says, with a note why.

    `api_key_env` names the environment variable with the server's API key; without it VLLM_API_KEY is taken, if set.
    Each of the two sources may take `timeout_s`.

    Raises:
        BadInput: not an http(s) URL, or the named variable holds no key.
        NotFit: no vLLM server answers, or it refuses the key in the variable that was named.
    """
    try:
        status = read_status(url, timeout_s, api_key(api_key_env))
    except NotFit as reason:
        if isinstance(reason, KeyWanted) and api_key_env is not None:
            raise
        return _from_metrics(url, timeout_s, reason)
    if not any(worker.plan for worker in status.cache.workers):
        reasons = sorted({str(worker.unsupported) for worker in status.cache.workers})
        cannot = NotFit(f"the status plugin cannot tell: {'; '.join(reasons)}", PLAN_WITHOUT_SERVER)
        return _from_metrics(url, timeout_s, cannot)
    return summary_of_status(status, without_credentials(url))


def summary_of_status(status: ServerStatus, where: str) -> CacheSummary:
    """Workers with equal plans are put together."""
    workers_by_plan: dict[CachePlan, list[str]] = {}
    for worker in status.cache.workers:
        if worker.plan:
            workers_by_plan.setdefault(worker.plan, []).append(_place(worker))
    several = status.cache.engines > 1
    notes = [f"{status.cache.engines} engines are behind this server, and vLLM passes on the answer of one"] * several
    silent = [worker for worker in status.cache.workers if not worker.plan]
    notes += [f"worker {_place(worker)} cannot tell: {worker.unsupported}" for worker in silent]
    others = Unknown(
        "the KV caches of the other engines", "see what their log says: dspark-tool inspect-cache --log FILE"
    )
    return CacheSummary(
        source=CacheSource.PLUGIN,
        where=where,
        vllm=status.vllm,
        workers=tuple(WorkerCache(tuple(names), plan) for plan, names in workers_by_plan.items()),
        unknown=(others,) if several else (),
        notes=tuple(notes),
        draft_context=status.draft_context.believed if status.draft_context else None,
    )


def _place(worker: WorkerStatus) -> str:
    return f"DP{worker.dp_rank} PP{worker.pp_rank} TP{worker.tp_rank}"


def _from_metrics(url: str, timeout_s: float, reason: NotFit) -> CacheSummary:
    how = START_WITH_PLUGIN if isinstance(reason, NoPlugin) else reason.next_step
    summary = summary_of_metrics(scrape(url, timeout_s), how)
    return summary if isinstance(reason, NoPlugin) else replace(summary, notes=(reason.what, *summary.notes))
