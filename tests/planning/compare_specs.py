"""Build models on the meta device, derive their layers from the same configurations, and say what differs.

Reads a request in JSON on stdin and prints JSON. One process imports vLLM once, for one platform, and compares many
cases.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
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
    from dspark_cli.inside_vllm.planned_ranks import take_place

    try:
        config = engine_config(case["options"])
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


def engine_config(options: dict[str, Any]) -> Any:
    """vLLM's configuration, with every model class inspected here: vLLM would start a process for each."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import ModelRegistry

    folders = [options["model"], (options.get("speculative_config") or {}).get("model")]
    for folder in filter(None, folders):
        for architecture in json.loads(Path(folder, "config.json").read_text())["architectures"]:
            known = ModelRegistry.models.get(architecture)
            if hasattr(known, "module_name"):
                ModelRegistry.register_model(architecture, known.load_model_cls())
    return EngineArgs(skip_tokenizer_init=True, **options).create_engine_config()


def build(config: Any) -> None:
    """vLLM's own model code, target and drafter."""
    import torch
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.workspace import init_workspace_manager

    init_workspace_manager(torch.device("meta"))
    for part, model in parts(config):
        with torch.device("meta"), everything_on_meta(), set_default_torch_dtype(model.dtype):
            initialize_model(part, model_config=model)


def derive(config: Any) -> None:
    from dspark_cli.inside_vllm.derived.layers import derive_layers

    for part, model in parts(config):
        config.compilation_config.static_forward_context.update(derive_layers(part, model))


def parts(config: Any) -> Iterator[tuple[Any, Any]]:
    """The target's configuration and the drafter's, as vLLM's speculators make it."""
    from vllm.compilation.backends import set_model_tag
    from vllm.config import replace
    from vllm.model_executor.models.qwen3_dflash import dflash_has_any_non_causal

    yield config, config.model_config
    speculative = config.speculative_config
    if speculative is None:
        return
    drafter = speculative.draft_model_config
    attention = replace(
        config.attention_config,
        backend=speculative.attention_backend,
        use_non_causal=dflash_has_any_non_causal(drafter.hf_config),
    )
    cache = config.cache_config
    if speculative.kv_cache_dtype is not None:
        cache = replace(cache, cache_dtype=speculative.kv_cache_dtype)
    with set_model_tag(f"{speculative.method}_head"):
        yield replace(config, attention_config=attention, cache_config=cache), drafter


def everything_on_meta() -> Any:
    """Tensors that model code puts on a GPU by name, put on the meta device like the others."""
    from torch.overrides import TorchFunctionMode

    class OnMeta(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None:
                kwargs["device"] = "meta"
            return function(*args, **kwargs)

    return OnMeta()


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
