"""Real engines, one after the other in this process: what vLLM itself planned for each.

Reads a JSON list of `vllm serve` argument lists on stdin, prints a JSON list of what each engine's KV cache is, or why
the engine refused.
"""

import json
import os
import sys
from typing import Any

ENGINE_ONLY = ["--load-format", "dummy", "--enforce-eager", "--skip-tokenizer-init"]


def engine_plan(vllm_args: list[str]) -> dict[str, Any]:
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import make_arg_parser
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor import Executor
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args([*vllm_args, *ENGINE_ONLY])
    config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
    alone = config.parallel_config.world_size == 1
    core = EngineCore(config, UniProcExecutor if alone else Executor.get_class(config), log_stats=False)
    worker = core.model_executor.driver_worker.worker.model_runner.kv_cache_config if alone else None
    worker = worker or core.scheduler.kv_cache_config
    cache = core.vllm_config.cache_config
    try:
        return {
            "blocks": worker.num_blocks,
            "kv_tokens": cache.kv_cache_size_tokens,
            "full_sequences": cache.kv_cache_max_concurrency,
            "pool_bytes": max(tensor.size for tensor in worker.kv_cache_tensors),
            "every_layer": alone,
            "layout": worker.kv_cache_layout,
            "hit_alignment_tokens": worker.cache_hit_alignment_tokens,
            "groups": [
                {
                    "layers": list(group.layer_names),
                    "block_tokens": group.kv_cache_spec.block_size,
                    "block_bytes": block_bytes(group),
                    "draft_flag": group.is_eagle_group,
                }
                for group in worker.kv_cache_groups
            ],
        }
    finally:
        core.shutdown()
        cleanup_dist_env_and_memory()


def block_bytes(group: Any) -> int:
    """A group with a specification for each layer sums them itself."""
    of_layers = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    return int(group.kv_cache_spec.page_size_bytes) * (1 if of_layers else len(group.layer_names))


def plan_or_refusal(vllm_args: list[str]) -> dict[str, Any]:
    from vllm.distributed import cleanup_dist_env_and_memory

    try:
        return engine_plan(vllm_args)
    except Exception as error:
        cleanup_dist_env_and_memory()
        return {"refused": str(error)}


def main() -> None:
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    plans = [plan_or_refusal(vllm_args) for vllm_args in json.load(sys.stdin)]
    with channel:
        json.dump(plans, channel)


if __name__ == "__main__":
    main()
