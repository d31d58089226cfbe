"""Ask the engines' workers about themselves, with care for the engines.

A question that one of several workers cannot answer leaves the others' replies unread in the executor's queues, where
they would be taken for the answers to its next call. So what is sent to the workers is a function that answers
anywhere: it is pickled by value, runs even where this package is missing or of another version, and never raises. That
holds for workers under Ray and on other hosts too. The engine gets no time limit for it, for a question given up
half-way does the same: the limit is on our side.

It is the engine core that sends it, in a utility call. Those are answered by their own id and, where the engine core
does not know the method, with an error: nothing is left over to be misread.

The engine answers between two steps, and its caches stay as they are for its lifetime. So one answer is enough, and
clients that ask often cost it nothing.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from dspark_cli.status_plugin.asked_once import AskedOnce
from dspark_cli.status_plugin.names import ENGINE_METHOD, PLUGIN, WORKERS_METHOD

WorkerAnswers = list[dict[str, Any]]
DESCRIBE_CACHE = "dspark_cli.status_plugin.worker_cache:describe_worker"
DESCRIBE_CONTEXT = "dspark_cli.status_plugin.worker_counters:describe_draft_context"


def question_to(engine_client: Any) -> AskedOnce[WorkerAnswers]:
    """What `describe_worker` says of each worker of the first engine behind `engine_client`."""

    async def put() -> WorkerAnswers:
        answers: WorkerAnswers = await engine_client.engine_core.call_utility_async(WORKERS_METHOD, DESCRIBE_CACHE)
        return answers

    # Elastic scaling makes new workers.
    elastic = getattr(engine_client.vllm_config.parallel_config, "enable_elastic_ep", False)
    return AskedOnce(put, keep_s=0 if elastic else inf)


def ask_workers(engine_core: Any, function: str) -> WorkerAnswers:
    """What `function`, one of the two above, says of each worker of an EngineCore, in the order of their ranks.

    Where it cannot be asked, the answer is `unsupported`, a reason, beside the worker's rank.
    """
    answers: WorkerAnswers = engine_core.model_executor.collective_rpc(_answering_anywhere(), args=(function,))
    return answers


def _answering_anywhere() -> Callable[[Any, str], dict[str, Any]]:
    # Pickled by value because it is nested, so it must not use anything of this module.
    def describe(wrapper: Any, function: str) -> dict[str, Any]:
        worker = getattr(wrapper, "worker", None) or wrapper
        try:
            from importlib import import_module

            module, _, name = function.partition(":")
            return dict(getattr(import_module(module), name)(worker))
        except Exception as error:
            rank = getattr(worker, "rank", 0)
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
            missing = isinstance(error, ModuleNotFoundError)
            unsupported = "dspark-tool is not installed on the worker's host" if missing else reason
            return {"rank": rank if isinstance(rank, int) else 0, "unsupported": unsupported}

    return describe


def engines_behind(parallel: Any) -> int:
    """Engines of one API server with vLLM's ParallelConfig `parallel`. It asks them all, and returns one's answer."""
    balanced_outside = parallel.data_parallel_external_lb or parallel.data_parallel_hybrid_lb
    return int(parallel.data_parallel_size_local if balanced_outside else parallel.data_parallel_size)


def server_refusal(engine_client: Any) -> str | None:
    """Why this server's engine must not be asked, or None where it may."""
    from vllm.v1.engine.core import EngineCore

    if engine_client.errored:
        return "the engine has died"
    if not (hasattr(EngineCore, ENGINE_METHOD) and hasattr(EngineCore, WORKERS_METHOD)):
        return f"the general plugin {PLUGIN} is not loaded beside the endpoint"
    return None
