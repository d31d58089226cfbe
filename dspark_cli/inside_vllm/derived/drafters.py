"""DFlash and DSpark drafters. Their layers continue the target's numbering, and no pipeline stage divides them."""

from dspark_cli.inside_vllm.derived.attention import Heads, attention
from dspark_cli.inside_vllm.derived.decoders import by_layer_type, layer_heads, own_or_divided
from dspark_cli.inside_vllm.derived.latent import latent_attention
from dspark_cli.inside_vllm.derived.place import NamedLayers, Place
from dspark_cli.inside_vllm.derived.words import FULL, SLIDING, kinds


def qwen3_drafter(place: Place) -> NamedLayers:
    """DFlash's backbone, which DSpark's Qwen3 drafter shares."""
    from vllm.model_executor.models.qwen3_dflash import _resolve_layer_attention

    config = place.model.hf_config
    if getattr(config, "layer_types", None) is not None:
        kinds(place, (FULL, SLIDING))
    heads = Heads(config.num_attention_heads, config.num_key_value_heads, own_or_divided(config))
    own = getattr(config, "dflash_config", None) or {}
    sinks = bool(own.get("attention_sink_bias", getattr(config, "add_swa_attention_sink_bias", False)))
    for index in range(config.num_hidden_layers):
        name = f"{place.prefix}model.layers.{place.layers_before + index}.self_attn.attn"
        window, _ = _resolve_layer_attention(config, index)
        yield name, attention(place, name, heads, window=window, sinks=sinks)


def laguna_drafter(place: Place) -> NamedLayers:
    """A window here bounds what is computed, not what is kept: vLLM takes it off the layer after choosing a backend."""
    config = place.model.hf_config
    heads = Heads(config.num_attention_heads, config.num_key_value_heads, own_or_divided(config))
    for index in range(config.num_hidden_layers):
        name = f"{place.prefix}model.layers.{place.layers_before + index}.self_attn.attn"
        window = by_layer_type(place, index)
        sinks = window is not None and getattr(config, "swa_attention_sink_enabled", False)
        layer = attention(place, name, heads, window=window, sinks=sinks)
        if window is not None:
            layer.sliding_window = None
        yield name, layer


def gemma4_drafter(place: Place) -> NamedLayers:
    """The one drafter that does not continue the target's numbering."""
    config = place.model.hf_config
    types = kinds(place, (FULL, SLIDING))
    for index in range(config.num_hidden_layers):
        name = f"{place.prefix}model.layers.{index}.self_attn.attn"
        window = config.sliding_window if types[index] == SLIDING else None
        yield name, attention(place, name, layer_heads(config, index), window=window)


def kimi_k3_drafter(place: Place) -> NamedLayers:
    """Dense latent attention, not causal within the drafted block."""
    for index in range(place.model.hf_config.num_hidden_layers):
        name = f"{place.prefix}model.layers.{place.layers_before + index}.self_attn"
        yield name, latent_attention(place, name, non_causal_decode=True)
