"""How one engine core runs: what vLLM made of what it was asked for, read from where it is used."""

import dataclasses
from enum import Enum
from typing import Any

from dspark_cli.status_plugin.worker_counters import one_line


def describe_configuration(engine_core: Any) -> dict[str, Any]:
    """The fields of `facts.engine_configuration.EngineConfiguration`.

    Plain values; never raises: what cannot be read is `unsupported`, a reason.
    """
    try:
        return _described(engine_core)
    except Exception as error:
        return {"unsupported": one_line(f"{type(error).__name__}: {error}")}


def _described(engine_core: Any) -> dict[str, Any]:
    config = engine_core.vllm_config
    parallel, scheduling = config.parallel_config, config.scheduler_config
    return {
        "speculative": _speculative(config.speculative_config),
        "drafter_max_model_len": _drafter_max_model_len(config.speculative_config),
        "prefix_caching": _prefix_caching(engine_core),
        "block_tokens": int(config.cache_config.block_size),
        "max_model_len": int(config.model_config.max_model_len),
        "max_batched_tokens": int(scheduling.max_num_batched_tokens),
        "max_sequences": int(scheduling.max_num_seqs),
        "workers": int(parallel.world_size),
        "executor": one_line(parallel.distributed_executor_backend),
        "model_runner": "V2" if getattr(config, "use_v2_model_runner", False) else "V1",
    }


def _speculative(speculative: Any) -> dict[str, Any]:
    """vLLM's SpeculativeConfig as far as it is plain: by its own keys, those that a user gives."""
    if speculative is None:
        return {}
    told = {field.name: getattr(speculative, field.name, None) for field in dataclasses.fields(speculative)}
    return {name: _plain(value) for name, value in told.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(held) for held in value)
    if isinstance(value, int | float):
        return value >= 0  # clients refuse others
    return value is None or isinstance(value, str | Enum)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, Enum):
        return one_line(value.name)
    return one_line(value) if isinstance(value, str) else value


def _drafter_max_model_len(speculative: Any) -> int | None:
    drafter = getattr(speculative, "draft_model_config", None)
    return None if drafter is None else int(drafter.max_model_len)


def _prefix_caching(engine_core: Any) -> bool:
    """Of the scheduler's own manager, which may know better than the configuration."""
    manager = getattr(engine_core.scheduler, "kv_cache_manager", None)
    asked = bool(engine_core.vllm_config.cache_config.enable_prefix_caching)
    return bool(getattr(manager, "enable_caching", asked))
