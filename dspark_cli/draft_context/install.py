"""Install the runtime in a worker process, where its drafter has a context to keep."""

import logging
from typing import Any

from dspark_cli.draft_context.installed import HERE
from dspark_cli.draft_context.policy import asked_policy

logger = logging.getLogger("vllm.dspark_tool")
METHODS = ("dflash", "dspark")


def install_for(config: Any) -> None:
    """config: the worker's VllmConfig. What is not done, and why, is in `HERE.inactive`."""
    HERE.policy = asked_policy()
    HERE.inactive = _refusal(config)
    if HERE.inactive is None:
        if getattr(config, "use_v2_model_runner", False):
            from dspark_cli.draft_context.runner_v2 import install
        else:
            from dspark_cli.draft_context.runner_v1 import install
        install()
        HERE.inactive = "no draft step yet"
    logger.info("draft context: %s (%s)", HERE.policy, HERE.inactive)


def _refusal(config: Any) -> str | None:
    speculative = config.speculative_config
    if speculative is None:
        return "no drafter"
    if getattr(speculative, "draft_model_config", None) is None:
        return f"the method {speculative.method} has no draft model"
    if config.parallel_config.prefill_context_parallel_size > 1:
        return "prefill context parallelism deals a step's tokens out to ranks"
    return None
