"""A general plugin of vLLM, loaded in all of its processes: workers and engine cores learn to describe themselves."""

from dspark_cli.status_plugin.names import ENGINE_METHOD, WORKER_COUNTERS, WORKER_METHOD, asked_for


def add_worker_method() -> None:
    """Give vLLM's worker class and its engine core read-only methods, and count draft acceptance in the scheduler.

    Only where the status was asked for. May be called again.
    """
    if not asked_for():
        return
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.worker.worker_base import WorkerBase

    from dspark_cli.draft_context.acceptance_by_restored import count_acceptance
    from dspark_cli.status_plugin.engine_counters import describe_engine
    from dspark_cli.status_plugin.worker_cache import describe_worker
    from dspark_cli.status_plugin.worker_counters import describe_draft_context

    setattr(WorkerBase, WORKER_METHOD, describe_worker)
    setattr(WorkerBase, WORKER_COUNTERS, describe_draft_context)
    setattr(EngineCore, ENGINE_METHOD, describe_engine)
    count_acceptance()
