"""Install the runtime in a worker process, where its drafter has a context to keep."""

import logging
from typing import Any

from dspark_cli.draft_context.installed import HERE
from dspark_cli.draft_context.policy import asked_policy, is_left_out

logger = logging.getLogger("vllm.dspark_tool")
METHODS = ("dflash", "dspark")
"""vLLM's names. DFlash2, XPress and LiLiCorr heads are dflash to it, and share its speculator."""

FORGETTING = ("wake_up", "reload_weights", "update_weights")
"""Methods of vLLM's worker after which no row counts as written."""


def install_for(config: Any) -> None:
    """config: the worker's VllmConfig. What is not done, and why, is in `HERE.inactive`."""
    HERE.policy = asked_policy()
    uses_v2 = _uses_v2(config)
    row = "draft_context_v2" if uses_v2 else "draft_context_v1"
    HERE.inactive = _refusal(config) or _misfit(row) or _installed(row, uses_v2)
    if HERE.inactive is None:
        HERE.inactive = "no draft step yet"
        logger.info("draft context: %s, on runner %s", HERE.policy, "V2" if uses_v2 else "V1")
    else:
        logger.info("draft context: %s (%s)", HERE.policy, HERE.inactive)


def _uses_v2(config: Any) -> bool:
    return bool(getattr(config, "use_v2_model_runner", False))


def _refusal(config: Any) -> str | None:
    speculative = config.speculative_config
    if speculative is None:
        return "no drafter"
    if speculative.method not in METHODS:
        return f"drafters of the method {speculative.method} keep no context KV"
    if config.parallel_config.prefill_context_parallel_size > 1:
        return "prefill context parallelism deals a step's tokens out to ranks"
    if config.parallel_config.decode_context_parallel_size > 1 and not _uses_v2(config):
        return "decode context parallelism on model runner V1 deals slots out to ranks"
    return None


def _misfit(row: str) -> str | None:
    """Why the registry's patch `row` must not be installed in the vLLM of this process."""
    from dspark_cli.patches.put_on import judged_here, misfit
    from dspark_cli.patches.registry import PATCHES

    if is_left_out(row):
        return f"{row} was left out"
    reason = misfit(judged_here([patch for patch in PATCHES if patch.name == row])[0])
    return reason and _failed(row, reason)


def _installed(row: str, uses_v2: bool) -> str | None:
    """Wrap vLLM's functions; None, or why none of them is wrapped."""
    from dspark_cli.draft_context.wrapping import all_or_nothing
    from dspark_cli.patches.put_on import one_line

    try:
        with all_or_nothing():
            if uses_v2:
                from dspark_cli.draft_context.runner_v2 import install
            else:
                from dspark_cli.draft_context.runner_v1 import install
            install()
            _forget_with_caches_and_weights()
    except Exception as error:
        return _failed(row, one_line(error))
    if row not in HERE.applied:
        HERE.applied.append(row)
    HERE.failed.pop(row, None)
    return None


def _forget_with_caches_and_weights() -> None:
    """A worker that slept has lost its caches, and rows of other weights are worth nothing to a new drafter."""
    from vllm.v1.worker.gpu_worker import Worker

    from dspark_cli.draft_context.wrapping import wrap

    for name in FORGETTING:
        if hasattr(Worker, name):
            wrap(Worker, name, _and_forget)


def _and_forget(stock: Any, worker: Any, *args: Any, **kwargs: Any) -> Any:
    result = stock(worker, *args, **kwargs)
    if HERE.context is not None:
        HERE.context.forget()
    return result


def _failed(row: str, reason: str) -> str:
    HERE.failed[row] = reason
    logger.error("patch %s: not applied: %s", row, reason)
    return f"{row}: {reason}"
