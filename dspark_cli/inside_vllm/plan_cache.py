"""Plan the KV cache of a target and its drafter with vLLM's own planner, without weights and without a server.

Both models are built on the meta device, each attention layer gives its KV cache spec, and vLLM groups the layers,
unifies pages and counts blocks as its engine does at start-up.
"""

from typing import Any

import torch
from vllm.config import VllmConfig, replace, set_current_vllm_config
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_capacity

from dspark_cli.inside_vllm.answer import Refused, answer
from dspark_cli.inside_vllm.planned_ranks import take_first_rank
from dspark_cli.sources.vllm_log import readable

MEMORY_ENOUGH_FOR_ANY_PLAN = 1 << 50
"""Groups do not depend on the memory; without a size they are planned in this much."""


def plan(request: dict[str, Any]) -> dict[str, Any]:
    """`request["vllm_args"]`: arguments of `vllm serve`. The result has the fields of `facts.cache_plan.CachePlan`."""
    config = _engine_config(request["vllm_args"])
    specs, target_layers = _layer_specs(config)
    _resolve_layout(config, specs)
    memory = config.cache_config.kv_cache_memory_bytes
    try:
        worker_plans = _worker_plans(config, specs, memory or MEMORY_ENOUGH_FOR_ANY_PLAN)
    except ValueError as error:
        raise Refused(f"vLLM's planner refuses: {error}") from None
    scheduler_plan = generate_scheduler_kv_cache_config(worker_plans)
    tokens, sequences = get_kv_cache_capacity(config, scheduler_plan)
    return {
        "groups": [_group(group, target_layers) for group in worker_plans[0].kv_cache_groups],
        "memory_bytes": memory,
        "pool_bytes_per_block": _pool_bytes(worker_plans[0]) // scheduler_plan.num_blocks,
        "blocks": scheduler_plan.num_blocks if memory else None,
        "kv_tokens": tokens if memory else None,
        "full_sequences": sequences if memory else None,
        "max_model_len": config.model_config.max_model_len,
        "layout": getattr(config.cache_config, "kv_cache_layout", None),
        "platform": _platform(),
    }


def _engine_config(vllm_args: list[str]) -> VllmConfig:
    parser = make_arg_parser(FlexibleArgumentParser())

    def refuse(message: str) -> None:
        raise Refused(f"vLLM does not take these arguments: {message}")

    parser.error = refuse
    try:
        arguments = parser.parse_args(vllm_args)
        config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config()
    except (ValueError, FileNotFoundError) as error:
        raise Refused(f"vLLM refuses this configuration: {' '.join(readable(str(error)))}") from None
    parallel = config.parallel_config
    if parallel.pipeline_parallel_size > 1 or parallel.decode_context_parallel_size > 1:
        raise Refused("plans for pipeline or context parallel sizes above 1 are not supported yet")
    return config


def _layer_specs(config: VllmConfig) -> tuple[dict[str, Any], set[str]]:
    """Layer name -> KV cache spec of both models, and the names of the target's layers."""
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    take_first_rank(config)
    layers = config.compilation_config.static_forward_context
    with torch.device("meta"), _default_dtype(config.model_config.dtype):
        initialize_model(config)
    target_layers = set(layers)
    drafter = config.speculative_config.draft_model_config if config.speculative_config else None
    if drafter is not None:
        with torch.device("meta"), _default_dtype(drafter.dtype):
            initialize_model(_drafter_config(config), model_config=drafter)
    current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        return get_kv_cache_spec(config), target_layers


def _drafter_config(config: VllmConfig) -> VllmConfig:
    """What vLLM changes for the drafter: its own attention backend and KV dtype, and whether it attends causally."""
    from vllm.model_executor.models.qwen3_dflash import dflash_has_any_non_causal

    speculative = config.speculative_config
    attention = replace(
        config.attention_config,
        backend=speculative.attention_backend,
        use_non_causal=dflash_has_any_non_causal(speculative.draft_model_config.hf_config),
    )
    kv_dtype = getattr(speculative, "kv_cache_dtype", None)
    cache = replace(config.cache_config, cache_dtype=kv_dtype) if kv_dtype else config.cache_config
    return replace(config, attention_config=attention, cache_config=cache)


def _default_dtype(dtype: torch.dtype) -> Any:
    from vllm.utils.torch_utils import set_default_torch_dtype

    return set_default_torch_dtype(dtype)


def _resolve_layout(config: VllmConfig, specs: dict[str, Any]) -> None:
    """The layout that the engine core would choose; releases before it had layouts plan without."""
    try:
        from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
    except ImportError:
        return
    from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

    with set_current_vllm_config(config):
        supported = get_supported_kv_cache_layouts(get_current_attn_backends(config))
        resolve_kv_cache_layout(config, [[layout.name for layout in supported]], list(specs.values()))


def _worker_plans(config: VllmConfig, specs: dict[str, Any], memory: int) -> list[Any]:
    """vLLM's plan for one worker with `memory` bytes. Since 0.33 its engine groups the layers in a call of its own."""
    try:
        from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
    except ModuleNotFoundError:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

        plans: list[Any] = get_kv_cache_configs(config, [specs], [memory])
    else:
        plans = get_kv_cache_configs(config, [specs], [memory], get_global_kv_cache_groups(config, [specs]))
    return plans


def _group(group: Any, target_layers: set[str]) -> dict[str, Any]:
    specs = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    layer_specs = list(specs.values()) if specs else [group.kv_cache_spec] * len(group.layer_names)
    of_target = {name in target_layers for name in group.layer_names}
    role = "shared" if len(of_target) == 2 else "target" if True in of_target else "draft"
    return {
        "role": role,
        "kind": "+".join(sorted({_kind(spec) for spec in layer_specs})),
        "layers": list(group.layer_names),
        "draft_layers": sum(name not in target_layers for name in group.layer_names),
        "block_tokens": group.kv_cache_spec.block_size,
        "page_bytes": max(_unpadded_page_bytes(spec) for spec in layer_specs),
        "padded_page_bytes": max(spec.page_size_bytes for spec in layer_specs),
        "block_bytes": sum(spec.page_size_bytes for spec in layer_specs),
        "window": max(getattr(spec, "sliding_window", None) or 0 for spec in layer_specs) or None,
        "draft_flag": group.is_eagle_group,
    }


def _kind(spec: Any) -> str:
    """FullAttentionSpec -> full attention, as vLLM names it."""
    name = type(spec).__name__.removesuffix("Spec")
    words = "".join(f" {c.lower()}" if c.isupper() and not name[i - 1 : i].isupper() else c for i, c in enumerate(name))
    return words.strip()


def _unpadded_page_bytes(spec: Any) -> int:
    if getattr(spec, "page_size_padded", None) is None:
        return int(spec.page_size_bytes)
    import dataclasses

    return int(dataclasses.replace(spec, page_size_padded=None).page_size_bytes)


def _pool_bytes(plan: Any) -> int:
    """Since tensors have an offset they all alias one pool; before, each was an allocation of its own."""
    sizes = [tensor.size for tensor in plan.kv_cache_tensors]
    return max(sizes) if hasattr(plan.kv_cache_tensors[0], "offset") else sum(sizes)


def _platform() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


if __name__ == "__main__":
    answer(plan)
