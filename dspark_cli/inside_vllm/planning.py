"""Layer specs -> the KV cache plan, by vLLM's own planner."""

import importlib
import re
from types import ModuleType
from typing import Any

from vllm.config import VllmConfig

from dspark_cli.inside_vllm.answer import Refused
from dspark_cli.inside_vllm.layer_specs import StageLayers

_LARGEST_LENGTH = re.compile(r"estimated maximum model length is (\d+)")
_NO_ROOM = re.compile(r"To serve at least one request|No available memory for the cache blocks")

MEMORY_ENOUGH_FOR_ANY_PLAN = 1 << 80
"""Groups do not depend on the memory; without a size they are planned in this much."""


class NoRoom(Exception):
    """The memory does not hold one sequence of the full length; `largest_length` of vLLM's words, or 0."""

    def __init__(self, largest_length: int) -> None:
        super().__init__(largest_length)
        self.largest_length = largest_length


def stage_plans(
    config: VllmConfig, stages: list[StageLayers], memory: int | None, group_width: int | None = None
) -> list[Any]:
    """vLLM's KVCacheConfig for each pipeline stage, each GPU having `memory` bytes for it.

    `group_width` is how many layers a group takes, in place of vLLM's own choice.

    Raises:
        NoRoom: not even one sequence of the full length fits.
        Refused: vLLM's planner refuses for another reason, in its own words.
    """
    specs = [dict(stage.specs) for stage in stages]
    available = [memory or MEMORY_ENOUGH_FOR_ANY_PLAN] * len(stages)
    try:
        groups = _groups_of_width(specs, group_width) if group_width else _groups(config, specs)
        return _configs(config, specs, available, groups)
    except (ValueError, NotImplementedError, AssertionError) as error:
        if _NO_ROOM.search(str(error)):
            largest = _LARGEST_LENGTH.search(str(error))
            raise NoRoom(int(largest[1]) if largest else 0) from None
        raise Refused(f"vLLM's planner refuses: {error}") from None


def plans_without_limit(config: VllmConfig, stages: list[StageLayers], group_width: int | None) -> list[Any]:
    """The groups of a deployment that has no room for a sequence of the full length."""
    override = config.cache_config.num_gpu_blocks_override
    config.cache_config.num_gpu_blocks_override = None
    try:
        return stage_plans(config, stages, None, group_width)
    finally:
        config.cache_config.num_gpu_blocks_override = override


def adopt_block_size(config: VllmConfig, plan: Any) -> None:
    """As the engine core does once it has groups: the configuration's block is the smallest that takes part in prefix
    caching."""
    specs = [group.kv_cache_spec for group in plan.kv_cache_groups]
    sizes = [spec.block_size for spec in specs if getattr(spec, "prefix_cacheable", True)]
    if specs:
        config.cache_config.block_size = min(sizes or [spec.block_size for spec in specs])


def resolve_layout(config: VllmConfig, stages: list[StageLayers]) -> None:
    """The layout that the engine core would choose; releases before it had layouts plan without.

    Raises:
        Refused: the layout asked for does not suit the backends.
    """
    try:
        from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
    except ImportError:
        return
    layers = config.compilation_config.static_forward_context
    cached = [
        layers[name] for name in dict.fromkeys(name for stage in stages for name in stage.specs) if name in layers
    ]
    backends = list(dict.fromkeys(layer.get_attn_backend() for layer in cached))
    supported = [layout.name for layout in get_supported_kv_cache_layouts(backends)]
    specs = [spec for stage in stages for spec in stage.specs.values()]
    try:
        resolve_kv_cache_layout(config, [supported], specs)
    except (ValueError, KeyError) as error:
        raise Refused(f"vLLM refuses the KV cache layout: {error}") from None


def _planner() -> ModuleType:
    """The module with vLLM's planner, which got one of its own in 0.33."""
    try:
        return importlib.import_module("vllm.v1.core.kv_cache_planning")
    except ModuleNotFoundError:
        return importlib.import_module("vllm.v1.core.kv_cache_utils")


def _groups(config: VllmConfig, specs: list[dict[str, Any]]) -> list[Any] | None:
    """vLLM's groups, where its engine makes them in a call of its own (since 0.33); before, the planner does it."""
    planner = _planner()
    return planner.get_global_kv_cache_groups(config, specs) if hasattr(planner, "get_global_kv_cache_groups") else None


def _configs(
    config: VllmConfig, specs: list[dict[str, Any]], available: list[int], groups: list[Any] | None
) -> list[Any]:
    planner = _planner()
    if hasattr(planner, "get_global_kv_cache_groups"):
        return list(planner.get_kv_cache_configs(config, specs, available, groups))
    vllms_own = planner.get_kv_cache_groups
    if groups is not None:
        planner.get_kv_cache_groups = lambda *_: groups  # type: ignore[attr-defined]
    try:
        return list(planner.get_kv_cache_configs(config, specs, available))
    finally:
        planner.get_kv_cache_groups = vllms_own  # type: ignore[attr-defined]


def _groups_of_width(specs: list[dict[str, Any]], width: int) -> list[Any]:
    """vLLM's buckets of equal layers, cut into groups of `width`.

    vLLM has no option for it: it takes the smallest bucket's size, or the largest's where the two are within half of
    each other.
    """
    planner = _planner()
    merged = {name: spec for stage in specs for name, spec in stage.items()}
    unified = planner.unify_kv_cache_spec_page_size(merged)
    buckets: dict[Any, list[str]] = {}
    for name, spec in unified.items():
        buckets.setdefault(spec, []).append(name)
    groups = [part for names in buckets.values() for part in _dealt(names, -(-len(names) // width))]
    made = list(planner.create_kv_cache_group_specs(unified, groups))
    for group in made:
        group.is_eagle_group = any(getattr(merged[name], "is_draft", False) for name in group.layer_names)
    return made


def _dealt(names: list[str], count: int) -> list[list[str]]:
    """As vLLM deals layers to groups: in turn, so that every pipeline stage has some of each."""
    return [names[at::count] for at in range(count)]
