"""Ask the engine's workers for their KV cache, with care for the engine.

A question that one of several workers cannot answer leaves the others' replies unread in the executor's queues, where
they would be taken for the answers to its next call. So it is put only where every worker is sure to know the method,
and the engine gets no time limit for it, for a question given up half-way does the same: the limit is on our side.

The engine answers between two steps, and its caches stay as they are for its lifetime. So one answer is enough, and
clients that ask often cost it nothing.
"""

from math import inf
from typing import Any

from dspark_cli.status_plugin.asked_once import AskedOnce
from dspark_cli.status_plugin.names import PLUGIN, WORKER_COUNTERS, WORKER_METHOD

WorkerAnswers = list[dict[str, Any]]


def question_to(engine_client: Any) -> AskedOnce[WorkerAnswers]:
    """What `describe_worker` says of each worker of the first engine behind `engine_client`."""

    async def put() -> WorkerAnswers:
        answers: WorkerAnswers = await engine_client.collective_rpc(WORKER_METHOD)
        return answers

    # Elastic scaling makes new workers.
    elastic = getattr(engine_client.vllm_config.parallel_config, "enable_elastic_ep", False)
    return AskedOnce(put, keep_s=0 if elastic else inf)


def engines_behind(parallel: Any) -> int:
    """Engines of one API server with vLLM's ParallelConfig `parallel`. It asks them all, and returns one's answer."""
    balanced_outside = parallel.data_parallel_external_lb or parallel.data_parallel_hybrid_lb
    return int(parallel.data_parallel_size_local if balanced_outside else parallel.data_parallel_size)


def workers_refusal(parallel: Any) -> str | None:
    """Why workers under `parallel` must not be asked, or None where they may."""
    if parallel.world_size == 1:
        return None
    if parallel.distributed_executor_backend != "mp":
        return f"workers of the executor {parallel.distributed_executor_backend} may lack the plugin {PLUGIN}"
    if parallel.nnodes > 1 or engines_behind(parallel) > parallel.data_parallel_size_local:
        return f"workers on other hosts may lack the plugin {PLUGIN}"
    if not str(parallel.worker_cls).startswith("vllm."):
        return f"the worker class {parallel.worker_cls} is not vLLM's own"
    return None


def server_refusal(engine_client: Any) -> str | None:
    """Why this server's engine must not be asked, or None where it may."""
    from vllm.v1.worker.worker_base import WorkerBase

    if engine_client.errored:
        return "the engine has died"
    if not (hasattr(WorkerBase, WORKER_METHOD) and hasattr(WorkerBase, WORKER_COUNTERS)):
        return f"the general plugin {PLUGIN} is not loaded beside the endpoint"
    return workers_refusal(engine_client.vllm_config.parallel_config)
