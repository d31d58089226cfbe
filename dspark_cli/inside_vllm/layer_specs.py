"""The KV cache spec of every layer of a target and its drafter, a pipeline stage at a time, without weights."""

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from vllm.config import VllmConfig, set_current_vllm_config

from dspark_cli.inside_vllm.answer import Refused
from dspark_cli.inside_vllm.engine_config import drafter_context_parallel, drafter_engine_config
from dspark_cli.inside_vllm.planned_ranks import take_place
from dspark_cli.sources.vllm_log import readable

BUILT, DERIVED = "built", "derived"


@dataclasses.dataclass
class StageLayers:
    """What one pipeline stage holds. `weight_bytes` is of one of its GPUs; None where a model was not built."""

    specs: dict[str, Any]
    """Layer name -> vLLM's KVCacheSpec, before grouping."""
    draft: set[str]
    backends: dict[str, str]
    """Layer name -> the attention backend that vLLM chose."""
    sources: dict[str, str]
    """Model ("target", "draft") -> built (by vLLM's own code) or derived, with the reason."""
    weight_bytes: int | None

    def layers(self) -> Iterator[tuple[str, Any, str]]:
        """(role, spec, backend) a layer."""
        for name, spec in self.specs.items():
            yield "draft" if name in self.draft else "target", spec, self.backends[name]


def stage_layers(config: VllmConfig) -> list[StageLayers]:
    """One entry a pipeline stage; `config` ends up with the block size that vLLM's backends ask for."""
    stages = config.parallel_config.pipeline_parallel_size
    return [_one_stage(config, stage, is_last=stage == stages - 1) for stage in range(stages)]


def _one_stage(config: VllmConfig, stage: int, is_last: bool) -> StageLayers:
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    take_place(config, stage)
    layers = config.compilation_config.static_forward_context
    layers.clear()
    sources: dict[str, str] = {}
    weights = [_place_layers(config, config.model_config, "target", sources)]
    of_target = set(layers)
    drafter = config.speculative_config.draft_model_config if config.speculative_config else None
    if drafter is not None and is_last:
        weights.append(_place_layers(drafter_engine_config(config), drafter, "draft", sources))
    draft = set(layers) - of_target
    for name in draft:
        layers[name].is_draft_layer = True
    current_platform.update_block_size_for_backend(config)
    with set_current_vllm_config(config):
        specs = get_kv_cache_spec(config)
        _refuse_impossible_pages(specs)
        backends = {name: layers[name].get_attn_backend().get_name() for name in specs}
    if draft and _is_replicated(config):
        for name in draft & specs.keys():
            specs[name] = dataclasses.replace(specs[name], dcp_sharded=False)
    known = [size for size in weights if size is not None]
    return StageLayers(
        specs, draft & specs.keys(), backends, sources, sum(known) if len(known) == len(weights) else None
    )


def _refuse_impossible_pages(specs: dict[str, Any]) -> None:
    for name, spec in specs.items():
        if spec.page_size_bytes <= 0 or spec.block_size <= 0:
            raise Refused(f"{name} asks for a page of {spec.page_size_bytes} bytes: is its config.json right?")


def _is_replicated(config: VllmConfig) -> bool:
    """Whether every context parallel rank holds all of the drafter's KV; model runner V1 knows nothing of it."""
    context_parallel = config.parallel_config.decode_context_parallel_size
    return bool(config.use_v2_model_runner) and drafter_context_parallel(config) == 1 < context_parallel


def _place_layers(config: VllmConfig, model: Any, role: str, sources: dict[str, str]) -> int | None:
    """Put a model's attention layers into the forward context: vLLM's own where its code builds, else derived ones.

    Returns the bytes of its weights on one GPU, where it was built.
    """
    layers = config.compilation_config.static_forward_context
    before = dict(layers)
    try:
        weights = build_on_meta(config, model)
    except (ValueError, AssertionError, ArithmeticError) as refusal:
        reason = " ".join(readable(str(refusal))) or type(refusal).__name__
        raise Refused(f"vLLM refuses to build the {role}: {reason}") from None
    except Exception as failure:
        layers.clear()
        layers.update(before)
        why = f"vLLM's code does not build here ({type(failure).__name__}: {failure})"
        layers.update(_derived(config, model, why))
        sources[role] = f"{DERIVED}: {why}"
        return _weight_bytes_on_disk(config, model)
    sources[role] = BUILT
    return weights


def _derived(config: VllmConfig, model: Any, why: str) -> dict[str, Any]:
    from dspark_cli.inside_vllm.derived.layers import UnknownLayerKind, derive_layers

    try:
        return dict(derive_layers(config, model))
    except UnknownLayerKind as unknown:
        raise Refused(f"{why}, and {unknown}") from None


def _weight_bytes_on_disk(config: VllmConfig, model: Any) -> int | None:
    """A GPU's share of the checkpoint, where it is in a folder here. Safetensors hold little beside the weights."""
    files = list(Path(model.model).glob("*.safetensors"))
    parallel = config.parallel_config
    ranks = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    return sum(file.stat().st_size for file in files) // ranks if files else None


def build_on_meta(config: VllmConfig, model: Any) -> int:
    """Let vLLM build `model`; its attention layers are then in the forward context. Returns the weights' bytes."""
    from vllm.model_executor.model_loader import utils as loading
    from vllm.utils.torch_utils import set_default_torch_dtype

    _have_a_workspace()
    loading.record_metadata_for_reloading = lambda _: None  # half of the time, for weights that never come
    with torch.device("meta"), _EverythingOnMeta(), set_default_torch_dtype(model.dtype):
        module = loading.initialize_model(config, model_config=model)
    return sum(weight.nbytes for name, weight in module.named_parameters() if not _is_shared(name, config, model))


def _is_shared(weight: str, config: VllmConfig, model: Any) -> bool:
    """Whether the drafter uses the target's embedding or output layer, as it does unless its checkpoint brings some."""
    return model is not config.model_config and any(part in weight for part in ("embed_tokens", "lm_head"))


def _have_a_workspace() -> None:
    """Sparse attention reserves scratch memory while it is built."""
    with suppress(ImportError):
        from vllm.v1.worker.workspace import init_workspace_manager

        init_workspace_manager(torch.device("meta"))


class _EverythingOnMeta(TorchFunctionMode):
    """Tensors that model code puts on a device by name, stay on the meta device like the others."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _device_constructors() or kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)
