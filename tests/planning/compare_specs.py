"""Build models on the meta device, derive their layers from the same configurations, and say what differs.

Reads a request in JSON on stdin and prints JSON. One process imports vLLM once, for one platform, and compares many
cases.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dspark_cli.inside_vllm.stand_in_platform import stand_in


def main() -> None:
    """Compare or only derive what stdin asks for. vLLM's own words go to stderr, the answer alone to stdout."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    stand_in("cuda" if request["gpu"] else "cpu", request["gpu"])
    compared = [compare(case) for case in request["compare"]]
    derived = [{"name": case["name"], **layers_of(case, derive)[1]} for case in request["derive"]]
    json.dump({"compare": compared, "derive": derived}, answer)
    answer.close()


def compare(case: dict[str, Any]) -> dict[str, Any]:
    """`case`: name, options of vLLM's EngineArgs, pipeline stage. An error is part of the result.

    Specs are compared by their own equality, layer by layer; the order of layers, their backends and the block size
    that vLLM chooses for them, too.
    """
    built_specs, built = layers_of(case, build)
    derived_specs, derived = layers_of(case, derive)
    names = [*built_specs, *(name for name in derived_specs if name not in built_specs)]
    return {
        "name": case["name"],
        "built": built,
        "derived": derived,
        "unlike": [name for name in names if built_specs.get(name) != derived_specs.get(name)],
    }


def layers_of(case: dict[str, Any], make: Callable[[Any], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Layer name -> spec, and what else there is to say of the layers that `make` puts into the forward context."""
    from dspark_cli.inside_vllm.engine_config import engine_config
    from dspark_cli.inside_vllm.planned_ranks import take_place

    try:
        config = engine_config(vllm_args(case["options"]))
        take_place(config, case["stage"])
        make(config)
        specs = specs_of(config)
    except Exception as error:
        return {}, {"error": f"{type(error).__name__}: {error}", "specs": {}}
    return specs, {
        "error": None,
        "specs": {name: repr(spec) for name, spec in specs.items()},
        "backends": backends_of(config),
        "block_size": config.cache_config.block_size,
    }


def vllm_args(options: dict[str, Any]) -> list[str]:
    """Options of vLLM's engine as words of its command line."""
    words = ["--skip-tokenizer-init"]
    for name, value in options.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
            words += [f"--{option}", *map(str, values)]
    return words


def build(config: Any) -> None:
    """vLLM's own model code, target and drafter."""
    from dspark_cli.inside_vllm.layer_specs import build_on_meta

    for part, model in parts(config):
        build_on_meta(part, model)


def derive(config: Any) -> None:
    from dspark_cli.inside_vllm.derived.layers import derive_layers

    for part, model in parts(config):
        config.compilation_config.static_forward_context.update(derive_layers(part, model))


def parts(config: Any) -> Iterator[tuple[Any, Any]]:
    """The target's configuration and model, and the drafter's."""
    from dspark_cli.inside_vllm.engine_config import drafter_engine_config

    yield config, config.model_config
    if config.speculative_config is not None:
        yield drafter_engine_config(config), config.speculative_config.draft_model_config


def specs_of(config: Any) -> dict[str, Any]:
    """Layer name -> spec, by what vLLM runs between building a model and planning its cache."""
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        return dict(get_kv_cache_spec(config))


def backends_of(config: Any) -> dict[str, str]:
    """Of every attention layer, those without a cache of their own included: its backend, and whose cache it reads."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    backends = {}
    for name, layer in config.compilation_config.static_forward_context.items():
        if isinstance(layer, AttentionLayerBase):
            read = getattr(layer, "kv_sharing_target_layer_name", None) or name
            backends[name] = f"{layer.get_attn_backend().__qualname__} of {read}"
    return backends


if __name__ == "__main__":
    main()
