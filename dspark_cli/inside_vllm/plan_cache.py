"""Plan the KV cache of a target and its drafter with vLLM's own planner, without weights and without a server.

A request holds several scenarios, so that comparing them pays for vLLM's import once:

    {"stand_in": null or {"platform": "cuda", "gpu": {...}}, "scenarios": [{...}, ...]}

with the fields of `sources.cache_planner.Scenario`. The answers are in order: {"scenario": {...}} with either
{"plan": {...}}, the fields of `facts.cache_plan.CachePlan`, or {"refused": "reason"}. A scenario that asks for every
layout or group width has one answer for each that there is.
"""

import gc
import math
import os
import re
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from dspark_cli.inside_vllm.answer import Refused, answer
from dspark_cli.sources.cache_planner import LAYOUT, LAYOUT_VARIABLE


def plan_scenarios(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("stand_in"):
        from dspark_cli.inside_vllm.stand_in_platform import stand_in

        stand_in(**request["stand_in"])
    import dspark_cli.inside_vllm.engine_config
    import dspark_cli.inside_vllm.layer_specs  # noqa: F401

    _put_what_lasts_aside()
    return {"answers": [_answer(one) for scenario in request["scenarios"] for one in _alternatives(scenario)]}


def _put_what_lasts_aside() -> None:
    """The models of a plan are collected; the rest, mostly vLLM's modules, the collector need not look at again."""
    gc.collect()
    gc.freeze()


def _answer(scenario: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"scenario": scenario, "plan": plan(scenario)}
    except Refused as refusal:
        return {"scenario": scenario, "refused": str(refusal)}
    except SystemExit:
        return {"scenario": scenario, "refused": "vLLM's argument parser ended, as it does for --help"}
    except Exception as error:
        traceback.print_exc()
        return {"scenario": scenario, "refused": f"vLLM cannot plan this: {type(error).__name__}: {error}"}
    finally:
        _put_what_lasts_aside()


def _alternatives(scenario: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The scenario itself, or one for each layout and group width where it asks for every one."""
    if not scenario["every"]:
        yield scenario
        return
    word, *rest = scenario["every"]
    for value, changed in _with_every_layout(scenario) if word == LAYOUT else _with_every_width(scenario):
        name = re.sub(rf"\b{word}(?=,|$)", f"{word}={value}", scenario["name"], count=1)
        yield from _alternatives({**changed, "every": rest, "name": name})


def _with_every_layout(scenario: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        from vllm.v1.kv_cache_layout import KVCacheLayout
    except ImportError:
        return
    for layout in KVCacheLayout:
        yield layout.name, {**scenario, "environment": [*scenario["environment"], (LAYOUT_VARIABLE, layout.name)]}


def _with_every_width(scenario: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for width in _widths(scenario):
        yield width, {**scenario, "group_width": width}


def _widths(scenario: dict[str, Any]) -> list[int]:
    """Group widths that could suit: how many layers of a kind there are, and what divides all of them."""
    answer = _answer({**scenario, "group_width": None, "every": []})
    if "refused" in answer:
        return [1]  # refused for the same reason, and then said
    counts = {kind["layers"] for kind in answer["plan"]["layer_kinds"]}
    return sorted({math.gcd(*counts), *counts})


def plan(scenario: dict[str, Any]) -> dict[str, Any]:
    """The plan of one scenario. Raises Refused."""
    with _environment(scenario["environment"]):
        return _plan(scenario)


def _plan(scenario: dict[str, Any]) -> dict[str, Any]:
    from vllm.platforms import current_platform
    from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config, get_kv_cache_capacity

    from dspark_cli.inside_vllm.engine_config import engine_config
    from dspark_cli.inside_vllm.layer_specs import stage_layers
    from dspark_cli.inside_vllm.plan_facts import (
        describe_groups,
        describe_layers,
        describe_policy,
        describe_stages,
        pool_bytes_per_block,
        whole_plan,
    )
    from dspark_cli.inside_vllm.planning import (
        NoRoom,
        adopt_block_size,
        plans_without_limit,
        resolve_layout,
        stage_plans,
    )

    started = time.perf_counter()
    config = engine_config(scenario["vllm_args"], scenario["drafter"], scenario["exact_options"])
    stages = stage_layers(config)
    if not any(stage.specs for stage in stages):
        raise Refused("this model has no KV cache")
    if empty := [number for number, stage in enumerate(stages) if not stage.specs]:
        raise Refused(f"pipeline stage {empty[0]} has no layer with a KV cache")
    resolve_layout(config, stages)
    weights = _weight_bytes(stages)
    given = config.cache_config.kv_cache_memory_bytes
    if given is not None and given <= 0:
        raise Refused(f"{given} bytes are no memory for a KV cache")
    memory = given or _left_by_weights(scenario, config, weights)
    width, largest = scenario["group_width"], None
    try:
        plans = stage_plans(config, stages, memory, width)
    except NoRoom as shortage:
        plans, largest = plans_without_limit(config, stages, width), shortage.largest_length
    pool_bytes = max(pool_bytes_per_block(plan) for plan in plans)
    scheduler_plan = generate_scheduler_kv_cache_config(plans)
    override = config.cache_config.num_gpu_blocks_override
    if largest is not None:
        scheduler_plan.num_blocks = override or (memory or 0) // pool_bytes
    known = memory is not None or override is not None
    adopt_block_size(config, scheduler_plan)
    tokens, sequences = get_kv_cache_capacity(config, scheduler_plan)
    return {
        "groups": describe_groups(whole_plan(plans), {name for stage in stages for name in stage.draft}, config),
        "memory_bytes": memory,
        "pool_bytes_per_block": pool_bytes,
        "memory_estimated": memory is not None and given is None,
        "blocks": scheduler_plan.num_blocks if known else None,
        "kv_tokens": tokens if known else None,
        "full_sequences": sequences if known else None,
        "max_model_len": config.model_config.max_model_len,
        "layout": getattr(config.cache_config, "kv_cache_layout", None),
        "platform": str(current_platform.device_type),
        "policy": describe_policy(scheduler_plan, config),
        "layer_kinds": describe_layers([layer for stage in stages for layer in stage.layers()]),
        "stages": describe_stages(plans, memory) if len(plans) > 1 else [],
        "sources": sorted({source for stage in stages for source in stage.sources.items()}),
        "weight_bytes": weights,
        "largest_length": largest,
        "planned_in_s": time.perf_counter() - started,
    }


def _weight_bytes(stages: list[Any]) -> int | None:
    """Of the stage whose GPUs hold most."""
    known = [stage.weight_bytes for stage in stages if stage.weight_bytes is not None]
    return max(known) if len(known) == len(stages) else None


def _left_by_weights(scenario: dict[str, Any], config: Any, weights: int | None) -> int | None:
    """KV memory where only the GPU's is given. Activations and graphs take a part of it that only a run can tell."""
    gpu_memory = scenario.get("gpu_memory_bytes")
    if gpu_memory is None:
        return None
    if weights is None:
        raise Refused("how large the weights are is not known, for the model was not built")
    left = int(gpu_memory * config.cache_config.gpu_memory_utilization) - weights
    if left <= 0:
        raise Refused(f"the weights take {weights:,} bytes, which is all of the utilised GPU memory")
    return left


@contextmanager
def _environment(variables: Iterable[tuple[str, str]]) -> Iterator[None]:
    """vLLM reads its variables when it needs them; those of one scenario are not the next one's."""
    before = dict(os.environ)
    os.environ.update(dict(variables))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    answer(plan_scenarios)
