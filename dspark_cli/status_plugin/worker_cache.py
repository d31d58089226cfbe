"""One worker's KV cache, read from its model runner."""

import copy
from typing import Any

DRAFT_LAYER_NAMES = ("draft_attn_layer_names", "_draft_attn_layer_names", "attn_layer_names")
"""Where drafters of model runner V2, of V1, and V1's extractor of hidden states keep their layers' names."""


class Unsupported(Exception):
    """This release, or this model, does not keep what is asked for."""


def describe_worker(worker: Any) -> dict[str, Any]:
    """The worker's place and either `plan`, the fields of `facts.cache_plan.CachePlan`, or `unsupported`, a reason.

    Plain values that survive JSON. Never raises: vLLM's executor reads no further replies once one worker failed, and
    would take those left over for the answers to its next call.
    """
    try:
        return {**_place(worker), "plan": _plan(worker)}
    except Exception as error:
        reason = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
        return {"rank": int(getattr(worker, "rank", 0)), "unsupported": reason.partition("\n")[0]}


def _place(worker: Any) -> dict[str, int]:
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    parallel = worker.vllm_config.parallel_config
    return {
        "rank": int(worker.rank),
        "dp_rank": int(getattr(parallel, "data_parallel_index", parallel.data_parallel_rank)),
        "pp_rank": int(get_pp_group().rank_in_group),
        "tp_rank": int(get_tp_group().rank_in_group),
    }


def _plan(worker: Any) -> dict[str, Any]:
    from vllm.platforms import current_platform
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_capacity

    from dspark_cli.inside_vllm.plan_facts import describe_groups, describe_policy, pool_bytes_per_block
    from dspark_cli.status_plugin.engine_view import engine_config, engine_plan

    runner = worker.model_runner
    held = getattr(runner, "kv_cache_config", None)
    if held is None:
        raise Unsupported(f"{type(runner).__name__} of this vLLM does not keep its KVCacheConfig")
    plan = engine_plan(held)
    if not plan.kv_cache_groups or not plan.kv_cache_tensors:
        raise Unsupported("this model has no KV cache")
    config = engine_config(worker.vllm_config, plan)
    # The scheduler's form of the plan, for the engine computes the capacity from that one.
    tokens, sequences = get_kv_cache_capacity(config, generate_scheduler_kv_cache_config([copy.copy(plan)]))
    bytes_per_block = pool_bytes_per_block(plan)
    return {
        "groups": describe_groups(plan, draft_layers(runner), config),
        "memory_bytes": plan.num_blocks * bytes_per_block,
        "pool_bytes_per_block": bytes_per_block,
        "blocks": int(plan.num_blocks),
        "kv_tokens": int(tokens),
        "full_sequences": float(sequences),
        "max_model_len": int(config.model_config.max_model_len),
        "layout": getattr(plan, "kv_cache_layout", None),
        "platform": str(current_platform.device_type),
        "policy": describe_policy(plan, config),
    }


def draft_layers(runner: Any) -> set[str]:
    """Names of the drafter's attention layers on this worker.

    Raises:
        Unsupported: there is a draft model, and it does not say which layers are its own.
    """
    drafter = getattr(runner, "speculator", None) or getattr(runner, "drafter", None)
    names = next((getattr(drafter, name) for name in DRAFT_LAYER_NAMES if hasattr(drafter, name)), None)
    if names is not None:
        return set(names)
    speculative = runner.vllm_config.speculative_config
    if drafter is None or getattr(speculative, "draft_model_config", None) is None:
        return set()
    raise Unsupported(f"{type(drafter).__name__} of this vLLM does not say which layers are the drafter's")
