"""Multi-head latent attention: one compressed vector a token, and the indexer that picks tokens for its sparse form."""

import torch
from vllm.model_executor.layers.attention import MLAAttention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.v1.attention.selector import get_attn_backend

from dspark_cli.inside_vllm.derived.kv_dtype import kv_cache_dtype
from dspark_cli.inside_vllm.derived.place import NamedLayers, Place, tensor_parallel
from dspark_cli.inside_vllm.derived.weightless import weightless

INDEXER_SCALE_BLOCK = 128
"""Elements of an indexer's key that share one fp32 scale."""


def latent_attention(place: Place, name: str, *, non_causal_decode: bool = False) -> AttentionLayerBase:
    """A dense layer: every token attends to every earlier one."""
    return _layer(place, name, leads_index_group=False, sparse=False, non_causal_decode=non_causal_decode)


def sparse_latent_attention(place: Place, prefix: str, index: int) -> NamedLayers:
    """The layer `<prefix>.attn` and, where it picks tokens itself, its indexer's key cache before it."""
    own_indexer = picks_tokens(place, index)
    if own_indexer:
        yield f"{prefix}.indexer.k_cache", _indexer_cache(place)
    yield f"{prefix}.attn", _layer(place, f"{prefix}.attn", leads_index_group=own_indexer, sparse=True)


def picks_tokens(place: Place, index: int) -> bool:
    """Whether layer `index` has an indexer, or takes the tokens that an earlier layer picked."""
    pattern = getattr(place.text, "index_topk_pattern", None)
    if pattern is not None:
        return not (index < len(pattern) and pattern[index] == "S")
    offset = getattr(place.text, "index_skip_topk_offset", 2)
    return bool(max(index - offset + 1, 0) % getattr(place.text, "index_topk_freq", 1) == 0)


def _layer(
    place: Place, name: str, *, leads_index_group: bool, sparse: bool, non_causal_decode: bool = False
) -> AttentionLayerBase:
    from vllm.model_executor.layers.attention.mla_attention import _canonicalize_sparse_mla_kv_cache_dtype

    if not place.config.model_config.use_mla and not place.model.use_mla:
        raise place.unknown("multi-head latent attention that vLLM runs as plain attention")
    size = place.text.kv_lora_rank + place.text.qk_rope_head_dim
    kv_dtype = kv_cache_dtype(place, name, has_window=False)
    backend = get_attn_backend(
        size,
        place.model.dtype,
        kv_dtype,
        use_mla=True,
        use_sparse=sparse,
        num_heads=place.text.num_attention_heads // tensor_parallel(),
    )
    own_format = _canonicalize_sparse_mla_kv_cache_dtype(backend, kv_dtype)
    if own_format != kv_dtype:
        place.config.cache_config.cache_dtype = own_format
    return weightless(
        MLAAttention,
        head_size=size,
        sliding_window=None,
        kv_cache_dtype=own_format,
        attn_backend=backend,
        indexer="its own" if leads_index_group else None,
        non_causal_multi_token_decode=non_causal_decode,
        topk_buffer_width=place.text.index_topk if sparse else None,
    )


def _indexer_cache(place: Place) -> AttentionLayerBase:
    from vllm.model_executor.models.deepseek_v2 import DeepseekV32IndexerCache

    size = place.text.index_head_dim
    return weightless(
        DeepseekV32IndexerCache,
        head_dim=size + size // INDEXER_SCALE_BLOCK * 4,
        dtype=torch.uint8,
        cache_config=place.config.cache_config,
    )
