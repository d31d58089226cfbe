"""A general plugin of vLLM, loaded in all of its processes: engine cores learn to describe themselves and to ask their
workers."""

from dspark_cli.status_plugin.names import ENGINE_METHOD, WORKERS_METHOD, asked_for


def add_worker_method() -> None:
    """Give vLLM's engine core read-only methods, one of which asks its workers, and count draft acceptance in the
    scheduler.

    Only where the status was asked for. May be called again.
    """
    if not asked_for():
        return
    from vllm.v1.engine.core import EngineCore

    from dspark_cli.draft_context.acceptance_by_restored import count_acceptance
    from dspark_cli.status_plugin.engine_counters import describe_engine
    from dspark_cli.status_plugin.worker_question import ask_workers

    setattr(EngineCore, WORKERS_METHOD, ask_workers)
    setattr(EngineCore, ENGINE_METHOD, describe_engine)
    count_acceptance()
