"""Attention layers that keep keys and values of heads: full, sliding-window, chunked, and across to an encoder."""

from dataclasses import dataclass
from typing import Any

from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.selector import get_attn_backend

from dspark_cli.inside_vllm.derived.kv_dtype import kv_cache_dtype
from dspark_cli.inside_vllm.derived.place import Place, tensor_parallel
from dspark_cli.inside_vllm.derived.weightless import weightless


@dataclass(frozen=True)
class Heads:
    """Counts over all tensor-parallel ranks; sizes are elements of a key and of a value."""

    query: int
    key_value: int
    size: int
    value_size: int | None = None

    def key_value_here(self, place: Place) -> int:
        """Key-value heads on one rank: a share of them, or one of its own copies."""
        ranks = tensor_parallel()
        fits = self.key_value % ranks == 0 if self.key_value >= ranks else ranks % self.key_value == 0
        if self.query % ranks or not fits:
            raise place.unknown(
                f"{self.query} query and {self.key_value} key-value heads do not divide over {ranks} ranks"
            )
        return max(1, self.key_value // ranks)


def attention(
    place: Place,
    name: str,
    heads: Heads,
    *,
    window: int | None = None,
    sinks: bool = False,
    shares_with: str | None = None,
    backend: Any = None,
) -> AttentionLayerBase:
    """A causal self-attention layer. Without a `window` of its own it takes the model's, as vLLM's layer does.

    `shares_with` is the name of the layer whose cache it reads; such a layer gets no spec.
    """
    window = place.config.cache_config.sliding_window if window is None else window
    kv_dtype = kv_cache_dtype(place, name, has_window=window is not None)
    if backend is None:
        backend = get_attn_backend(
            heads.size,
            place.model.dtype,
            kv_dtype,
            has_sink=sinks,
            use_mm_prefix=place.config.model_config.is_mm_prefix_lm,
            use_per_head_quant_scales=_scales_per_head(place),
            attn_type=AttentionType.DECODER,
            has_sliding_window=window is not None,
        )
    return weightless(
        Attention,
        **_keys_and_values(place, heads, kv_dtype),
        attn_type=AttentionType.DECODER,
        attn_backend=backend,
        sliding_window=window,
        kv_sharing_target_layer_name=shares_with,
    )


def chunked_local_attention(place: Place, name: str, heads: Heads, chunk: int) -> AttentionLayerBase:
    """Attention within chunks of `chunk` tokens."""
    from vllm.model_executor.layers.attention import ChunkedLocalAttention
    from vllm.model_executor.layers.attention.chunked_local_attention import create_chunked_local_attention_backend

    backend = get_attn_backend(heads.size, place.model.dtype, place.config.cache_config.cache_dtype)
    window = place.config.cache_config.sliding_window
    return weightless(
        ChunkedLocalAttention,
        **_keys_and_values(place, heads, kv_cache_dtype(place, name, has_window=window is not None)),
        attn_type=AttentionType.DECODER,
        attn_backend=create_chunked_local_attention_backend(backend, chunk),
        attention_chunk_size=chunk,
        kv_sharing_target_layer_name=None,
    )


def cross_attention(place: Place, name: str, heads: Heads) -> AttentionLayerBase:
    """A decoder's attention to its encoder's output."""
    from vllm.model_executor.layers.attention import CrossAttention
    from vllm.model_executor.layers.attention.cross_attention import create_cross_attention_backend

    backend = get_attn_backend(
        heads.size,
        place.model.dtype,
        place.config.cache_config.cache_dtype,
        attn_type=AttentionType.ENCODER_DECODER,
    )
    return weightless(
        CrossAttention,
        **_keys_and_values(place, heads, kv_cache_dtype(place, name, has_window=False)),
        attn_type=AttentionType.ENCODER_DECODER,
        attn_backend=create_cross_attention_backend(backend),
        kv_sharing_target_layer_name=None,
    )


def _keys_and_values(place: Place, heads: Heads, kv_dtype: str) -> dict[str, Any]:
    return {
        "num_kv_heads": heads.key_value_here(place),
        "head_size": heads.size,
        "head_size_v": heads.size if heads.value_size is None else heads.value_size,
        "kv_cache_dtype": kv_dtype,
        # vLLM reads "auto" as the target's dtype, for a drafter too.
        "kv_cache_torch_dtype": kv_cache_dtype_str_to_dtype(kv_dtype, place.config.model_config),
    }


def _scales_per_head(place: Place) -> bool:
    scheme = getattr(place.quantization, "kv_cache_scheme", None)
    return scheme is not None and scheme.get("strategy") == "attn_head"
