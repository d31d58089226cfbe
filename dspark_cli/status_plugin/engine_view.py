"""A worker's KV cache plan and configuration as the engine core has them.

The worker's own differ a little: the model runner adds layers without memory to the groups, and what the engine core
decided after it had started the workers never reached their configuration.
"""

import copy
from typing import Any

from vllm.config import VllmConfig


def engine_plan(held: Any) -> Any:
    """A copy of the runner's KVCacheConfig with only the layers that have memory of their own."""
    with_memory = {name for tensor in held.kv_cache_tensors for name in _layers_of(tensor)}
    plan = copy.copy(held)
    plan.kv_cache_groups = []
    for group in held.kv_cache_groups:
        layers = [name for name in group.layer_names if name in with_memory]
        # A group without any layer is another pipeline stage's. One that loses all of them is the runner's alone.
        if layers or not group.layer_names:
            kept = copy.copy(group)
            kept.layer_names = layers
            plan.kv_cache_groups.append(kept)
    return plan


def engine_config(config: VllmConfig, plan: Any) -> VllmConfig:
    """A copy of the worker's configuration with what the engine core resolves from `plan`."""
    specs = [group.kv_cache_spec for group in plan.kv_cache_groups]
    cacheable = [spec for spec in specs if getattr(spec, "prefix_cacheable", True)] or specs
    view = copy.copy(config)
    view.cache_config = copy.copy(config.cache_config)
    view.cache_config.block_size = min(spec.block_size for spec in cacheable)
    if any(_is_non_causal(spec) for spec in specs):
        view.cache_config.enable_prefix_caching = False
    return view


def _layers_of(tensor: Any) -> list[str]:
    """Releases before block strides had tensors that several layers share."""
    layers: list[str] = tensor.layers if hasattr(tensor, "layers") else tensor.shared_by
    return layers


def _is_non_causal(spec: Any) -> bool:
    of_layer = getattr(spec, "kv_cache_specs", None)
    return any(getattr(each, "non_causal", False) for each in (of_layer.values() if of_layer else [spec]))
