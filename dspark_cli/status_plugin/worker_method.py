"""A general plugin of vLLM, loaded in all of its processes: workers learn to describe their KV cache."""

from dspark_cli.status_plugin.names import WORKER_METHOD, asked_for


def add_worker_method() -> None:
    """Give vLLM's worker class one read-only method, where the status was asked for. May be called again."""
    if not asked_for():
        return
    from vllm.v1.worker.worker_base import WorkerBase

    from dspark_cli.status_plugin.worker_cache import describe_worker

    setattr(WorkerBase, WORKER_METHOD, describe_worker)
