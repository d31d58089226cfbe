"""A general plugin of vLLM, loaded in all of its processes: workers learn to keep their draft context honest."""

from typing import Any

from dspark_cli.draft_context.policy import Policy, asked_policy


def keep_draft_context() -> None:
    """Where VLLM_DSPARK_DRAFT_CONTEXT asks for it, have every worker of this process install the runtime when it is
    made. May be called again. Nothing else of vLLM is touched, or even imported, before."""
    if asked_policy() is Policy.OFF:
        return
    from vllm.v1.worker.worker_base import WorkerBase

    from dspark_cli.draft_context.wrapping import wrap

    wrap(WorkerBase, "__init__", _make_worker)


def _make_worker(stock: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
    stock(worker, *args, **kwargs)
    from dspark_cli.draft_context.install import install_for
    from dspark_cli.patches.put_on import require_all_ranks_alike

    install_for(worker.vllm_config)
    require_all_ranks_alike(worker.vllm_config.parallel_config)
