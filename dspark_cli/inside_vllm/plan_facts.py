"""vLLM's KVCacheConfig as the facts that `facts.cache_plan` holds. Serves the planner and the status plugin alike."""

import dataclasses
import re
from collections.abc import Collection, Sequence
from typing import Any

from vllm.config import VllmConfig


def describe_groups(plan: Any, draft: Collection[str], config: VllmConfig) -> list[dict[str, Any]]:
    """A dictionary a group, with the fields of `facts.cache_plan.KVCacheGroup`; `draft` names the drafter's layers."""
    specs: list[Any] = []
    described = []
    for group in plan.kv_cache_groups:
        if group.kv_cache_spec not in specs:
            specs.append(group.kv_cache_spec)
        described.append({**_group(group, draft, config), "bucket": specs.index(group.kv_cache_spec)})
    return described


def whole_plan(plans: Sequence[Any]) -> Any:
    """The plans of all pipeline stages as one: each group with the layers of every stage."""
    if len(plans) == 1:
        return plans[0]
    groups = [_joined(of_stages) for of_stages in zip(*(plan.kv_cache_groups for plan in plans), strict=True)]
    return dataclasses.replace(plans[0], kv_cache_groups=groups)


def describe_layers(layers: Sequence[tuple[str, Any, str]]) -> list[dict[str, Any]]:
    """(role, spec, backend) a layer -> a dictionary for equal ones, with the fields of `facts.cache_plan.LayerKind`."""
    counted: dict[tuple[Any, ...], int] = {}
    for role, spec, backend in layers:
        key = (role, _kind(spec), spec.block_size, unpadded_page_bytes(spec), _window(spec), backend)
        counted[key] = counted.get(key, 0) + 1
    names = ("role", "kind", "block_tokens", "page_bytes", "window", "backend")
    return [{**dict(zip(names, key, strict=True)), "layers": count} for key, count in counted.items()]


def describe_stages(plans: Sequence[Any], memory: int | None) -> list[dict[str, Any]]:
    """A dictionary a pipeline stage, with the fields of `facts.cache_plan.StagePlan`."""
    return [
        {
            "stage": stage,
            "layers": [len(group.layer_names) for group in plan.kv_cache_groups],
            "pool_bytes_per_block": pool_bytes_per_block(plan),
            "blocks_it_could_hold": memory and memory // pool_bytes_per_block(plan),
        }
        for stage, plan in enumerate(plans)
    ]


def describe_policy(plan: Any, config: VllmConfig) -> dict[str, Any]:
    """What beside the groups decides capacity and prefix hits: the fields of `facts.cache_plan.CachePolicy`."""
    parallel, cache, speculative = config.parallel_config, config.cache_config, config.speculative_config
    scheduler_tokens, hash_tokens, hit_tokens = _alignment(plan, config)
    drafter = getattr(speculative, "draft_model_config", None)
    return {
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "decode_context_parallel": parallel.decode_context_parallel_size,
        "hybrid_manager": not config.scheduler_config.disable_hybrid_kv_cache_manager,
        "prefix_caching": bool(cache.enable_prefix_caching),
        "block_drop": bool(speculative and _block_drop(speculative)),
        "method": speculative and speculative.method,
        "draft_tokens": speculative and speculative.num_speculative_tokens,
        "drafter_trained_tokens": drafter and _trained_length(drafter),
        "scheduler_block_tokens": scheduler_tokens,
        "hash_block_tokens": hash_tokens,
        "hit_alignment_tokens": hit_tokens,
        "kv_dtype": str(cache.cache_dtype),
        "max_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "model_runner": "V2" if getattr(config, "use_v2_model_runner", False) else "V1",
        "sleep_mode": bool(getattr(config.model_config, "enable_sleep_mode", False)),
    }


def pool_bytes_per_block(plan: Any) -> int:
    """Bytes of the pool that one block takes: since tensors have an offset they all alias one allocation."""
    sizes = [tensor.size for tensor in plan.kv_cache_tensors]
    total = max(sizes) if hasattr(plan.kv_cache_tensors[0], "offset") else sum(sizes)
    return int(total // plan.num_blocks)


def _group(group: Any, draft: Collection[str], config: VllmConfig) -> dict[str, Any]:
    spec = group.kv_cache_spec
    of_layer = getattr(spec, "kv_cache_specs", None)
    layer_specs = [of_layer[name] if of_layer else spec for name in group.layer_names]
    any_spec = layer_specs[0] if layer_specs else spec
    of_draft = sum(name in draft for name in group.layer_names)
    copies = [_copies(layer, config, name in draft) for name, layer in zip(group.layer_names, layer_specs, strict=True)]
    full_length = any_spec.max_memory_usage_bytes(config)
    return {
        "role": "draft" if of_draft and of_draft == len(layer_specs) else "shared" if of_draft else "target",
        "kind": "+".join(sorted({_kind(layer) for layer in layer_specs or [spec]})),
        "layers": list(group.layer_names),
        "draft_layers": of_draft,
        "block_tokens": spec.block_size,
        "page_bytes": max((unpadded_page_bytes(layer) for layer in layer_specs), default=0),
        "padded_page_bytes": max((int(layer.page_size_bytes) for layer in layer_specs), default=0),
        "useful_block_bytes": sum(unpadded_page_bytes(layer) for layer in layer_specs),
        "block_bytes": sum(int(layer.page_size_bytes) for layer in layer_specs),
        "window": max((_window(layer) or 0 for layer in layer_specs), default=0) or None,
        "draft_flag": bool(group.is_eagle_group),
        "sharded": _context_parallel(any_spec, config) > 1,
        "blocks_per_sequence": -(-full_length // int(any_spec.page_size_bytes)),
        "useful_tokens_per_sequence": _useful_tokens(any_spec, config),
        "copies": max(copies, default=1),
        "copied_block_bytes": sum(map(_copied_bytes, layer_specs, copies)),
    }


def _joined(groups: Sequence[Any]) -> Any:
    """One group over pipeline stages; layers with a specification each keep it."""
    names = [name for group in groups for name in group.layer_names]
    specs = [getattr(group.kv_cache_spec, "kv_cache_specs", None) for group in groups]
    spec = groups[0].kv_cache_spec
    if any(specs):
        spec = dataclasses.replace(spec, kv_cache_specs={name: s for of in specs for name, s in (of or {}).items()})
    flagged = any(group.is_eagle_group for group in groups)
    return dataclasses.replace(groups[0], layer_names=names, kv_cache_spec=spec, is_eagle_group=flagged)


def _kind(spec: Any) -> str:
    """FullAttentionSpec -> full attention, SlidingWindowMLASpec -> sliding window MLA: as vLLM names it."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", type(spec).__name__.removesuffix("Spec"))
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words)


def unpadded_page_bytes(spec: Any) -> int:
    if getattr(spec, "page_size_padded", None) is None:
        return int(spec.page_size_bytes)
    if hasattr(spec, "real_page_size_bytes"):
        return int(spec.real_page_size_bytes)
    return int(dataclasses.replace(spec, page_size_padded=None).page_size_bytes)


def _window(spec: Any) -> int | None:
    return getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)


def _useful_tokens(spec: Any, config: VllmConfig) -> int | None:
    """Tokens that a full-length sequence's last step reads from this rank's cache; None for a state, read whole."""
    if type(spec).__name__ == "MambaSpec":
        return None
    if type(spec).__name__ == "CrossAttentionSpec":
        return int(config.scheduler_config.max_num_encoder_input_tokens)
    length = int(config.model_config.max_model_len)
    if type(spec).__name__.startswith(("SlidingWindow", "ChunkedLocal")):
        length = min(length, _window(spec) or length)
    return -(-length // _context_parallel(spec, config))


def _context_parallel(spec: Any, config: VllmConfig) -> int:
    """Over how many ranks the tokens of a layer are sharded."""
    sharded = getattr(spec, "dcp_sharded", type(spec).__name__ != "MambaSpec")
    return int(config.parallel_config.decode_context_parallel_size) if sharded else 1


def _copies(spec: Any, config: VllmConfig, of_drafter: bool) -> int:
    """How many ranks of one replica hold the same bytes: KV heads fewer than ranks, or a draft not sharded by DCP."""
    parallel = config.parallel_config
    shards = getattr(spec, "max_tp_shards", None) or _heads_to_share(spec, config, of_drafter)
    by_heads = parallel.tensor_parallel_size // shards if shards else 1
    return max(1, by_heads // _context_parallel(spec, config))


def _heads_to_share(spec: Any, config: VllmConfig, of_drafter: bool) -> int | None:
    """The model's KV heads where a rank has one of them: only then can ranks outnumber heads. vLLM's own
    `max_tp_shards` says it of latent attention only."""
    if getattr(spec, "num_kv_heads", None) != 1:
        return None
    model = config.speculative_config.draft_model_config if of_drafter else config.model_config
    return int(model.get_total_num_kv_heads())


def _copied_bytes(spec: Any, copies: int) -> int:
    """What of a page is a copy; of equal holders one counts as holding the original."""
    useful = unpadded_page_bytes(spec)
    return useful - useful // copies


def _alignment(plan: Any, config: VllmConfig) -> tuple[int | None, int | None, int | None]:
    """Tokens of a scheduler block, of a hash block, and between the places where a prefix hit can end."""
    from vllm.v1.core import kv_cache_utils

    resolve = getattr(kv_cache_utils, "resolve_kv_cache_block_sizes", None)
    align = getattr(kv_cache_utils, "resolve_cache_hit_alignment_tokens", None)
    if resolve is None or align is None or not plan.kv_cache_groups:
        return None, None, None
    scheduler, hashed = resolve(plan, config)
    if getattr(plan, "hash_block_size", None) and getattr(plan, "cache_hit_alignment_tokens", None):
        return scheduler, plan.hash_block_size, plan.cache_hit_alignment_tokens  # as the engine core resolved them
    return scheduler, hashed, align(plan, config, scheduler, hashed)


def _block_drop(speculative: Any) -> bool:
    drops = getattr(speculative, "use_eagle_block_drop", speculative.use_eagle)
    return bool(drops())


def _trained_length(drafter: Any) -> int | None:
    length = getattr(drafter.hf_text_config, "max_position_embeddings", None)
    return int(length) if isinstance(length, int) else None
