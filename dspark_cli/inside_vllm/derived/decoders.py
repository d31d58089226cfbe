"""Decoders whose every layer is attention with keys and values of heads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dspark_cli.inside_vllm.derived.attention import Heads, attention, chunked_local_attention
from dspark_cli.inside_vllm.derived.place import NamedLayer, NamedLayers, Place
from dspark_cli.inside_vllm.derived.words import FULL, SLIDING, kinds

Window = Callable[[Place, int], int | None]


@dataclass(frozen=True)
class Decoder:
    """How vLLM's code for an architecture names its layers and sizes them."""

    window: Window
    head_size: Callable[[Any], int]
    name: str = "model.layers.{index}.self_attn.attn"
    sinks: bool = False
    reads: frozenset[str] = field(default=frozenset())

    def layers(self, place: Place) -> NamedLayers:
        for index in place.stage(place.text.num_hidden_layers):
            yield self.layer(place, index)

    def layer(self, place: Place, index: int) -> NamedLayer:
        text = place.text
        key_value = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        heads = Heads(text.num_attention_heads, key_value, self.head_size(text))
        name = place.prefix + self.name.format(index=index)
        return name, attention(place, name, heads, window=self.window(place, index), sinks=self.sinks)


def own_or_divided(text: Any) -> int:
    """`head_dim`, or the hidden size over the heads where there is none."""
    return getattr(text, "head_dim", None) or divided(text)


def divided(text: Any) -> int:
    """The hidden size over the heads, whatever `head_dim` says."""
    return int(text.hidden_size // text.num_attention_heads)


def by_layer_type(place: Place, index: int) -> int | None:
    """The window of the layers that `layer_types` calls sliding; without the list every layer is full."""
    if getattr(place.text, "layer_types", None) is None:
        return None
    sliding = kinds(place, (FULL, SLIDING))[index] == SLIDING
    return int(place.text.sliding_window) if sliding else None


def of_the_model(place: Place, index: int) -> int | None:
    """None: vLLM gives these layers no window of their own, so one kind of layer is all they can be."""
    if len(set(getattr(place.text, "layer_types", None) or ())) > 1:
        raise place.unknown(f"layer types differ ({', '.join(sorted(set(place.text.layer_types)))})")
    return by_layer_type(place, index)


def every_other(place: Place, index: int) -> int | None:
    """gpt-oss: the even layers, whatever `layer_types` says."""
    kinds(place, (FULL, SLIDING))
    return None if index % 2 else int(place.text.sliding_window)


def one_more(place: Place, index: int) -> int | None:
    """Cohere: a window that counts the present token."""
    window = by_layer_type(place, index)
    return None if window is None else window + 1


def llama4(place: Place) -> NamedLayers:
    """Layers without RoPE attend to everything, the others within a chunk."""
    text = place.text
    heads = Heads(text.num_attention_heads, text.num_key_value_heads, text.head_dim)
    for index in place.stage(text.num_hidden_layers):
        name = f"{place.prefix}model.layers.{index}.self_attn.attn"
        chunked = text.no_rope_layers[index] and text.attention_chunk_size
        yield (
            name,
            chunked_local_attention(place, name, heads, text.attention_chunk_size)
            if chunked
            else attention(place, name, heads),
        )


def gemma_with_shared_layers(place: Place) -> NamedLayers:
    """Gemma 3n and 4: the last layers read the cache of the last earlier layer of their kind; heads differ by kind."""
    text = place.text
    types = kinds(place, (FULL, SLIDING))
    first_sharing = text.num_hidden_layers - (getattr(text, "num_kv_shared_layers", 0) or 0)
    for index in place.stage(text.num_hidden_layers):
        name = f"{place.prefix}model.layers.{index}.self_attn.attn"
        shared = None
        if index >= first_sharing:
            before = types[:first_sharing]
            shared = f"{place.prefix}model.layers.{_last(before, types[index], place)}.self_attn.attn"
        window = text.sliding_window if types[index] == SLIDING else None
        yield name, attention(place, name, layer_heads(text, index), window=window, shares_with=shared)


def layer_heads(text: Any, index: int) -> Heads:
    """Of one layer, where Transformers gives each layer a configuration of its own."""
    layers = getattr(text, "per_layer_config", None)
    own = layers[index] if layers is not None else text
    return Heads(text.num_attention_heads, own.num_key_value_heads, own.head_dim)


def _last(before: list[str], kind: str, place: Place) -> int:
    if kind not in before:
        raise place.unknown(f"a {kind} layer shares the cache of an earlier one, and there is none")
    return len(before) - 1 - before[::-1].index(kind)


def laguna(place: Place) -> NamedLayers:
    text = place.text
    per_layer = getattr(text, "num_attention_heads_per_layer", None)
    for index in place.stage(text.num_hidden_layers):
        name = f"{place.prefix}model.layers.{index}.self_attn.attn"
        query = per_layer[index] if per_layer is not None else text.num_attention_heads
        heads = Heads(query, text.num_key_value_heads, own_or_divided(text))
        window = by_layer_type(place, index)
        sinks = window is not None and getattr(text, "swa_attention_sink_enabled", False)
        yield name, attention(place, name, heads, window=window, sinks=sinks)


def mimo_v2(place: Place) -> NamedLayers:
    """Two kinds of layers, each with heads of its own; values may be smaller than keys."""
    text = place.text
    # A window is given to the layers that have one; vLLM takes it off the configuration, where it would be for all.
    place.config.cache_config.sliding_window = None
    for index in place.stage(text.num_hidden_layers):
        name = f"{place.prefix}model.layers.{index}.self_attn.attn"
        kind = text.hybrid_layer_pattern[index]
        if kind not in (0, 1):
            raise place.unknown(f"layer type {kind!r} (layer {index}) is not known")
        of_kind = "swa_" if kind else ""
        heads = Heads(
            getattr(text, f"{of_kind}num_attention_heads"),
            getattr(text, f"{of_kind}num_key_value_heads"),
            getattr(text, f"{of_kind}head_dim"),
            getattr(text, f"{of_kind}v_head_dim", None),
        )
        sinks = bool(kind) and getattr(text, "add_swa_attention_sink_bias", False)
        yield (
            name,
            attention(
                place,
                name,
                heads,
                window=text.sliding_window_size if kind else None,
                sinks=sinks,
                backend=_keys_unlike_values(place, heads, sinks),
            ),
        )


def _keys_unlike_values(place: Place, heads: Heads, sinks: bool) -> Any:
    """The backend that MiMo's layers choose by themselves where a value is smaller than a key; else None."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    if heads.value_size in (None, heads.size):
        return None
    asked = place.config.attention_config.backend
    if asked is None or not asked.name.endswith("_DIFFKV"):
        flash = AttentionBackendEnum.FLASH_ATTN_DIFFKV
        fits = flash.get_class().is_supported_on_current_device(
            head_size=heads.size, head_size_v=heads.value_size, has_sinks=sinks
        )
        asked = flash if fits else AttentionBackendEnum.TRITON_ATTN_DIFFKV
    backend = asked.get_class()
    backend.set_head_size_v(heads.value_size)
    return backend
