"""Encoder-decoders: the decoder attends to itself and across to the encoder, whose own layers keep nothing."""

from dspark_cli.inside_vllm.derived.attention import Heads, attention, cross_attention
from dspark_cli.inside_vllm.derived.place import NamedLayers, Place


def whisper(place: Place) -> NamedLayers:
    config = place.model.hf_config
    count = config.decoder_attention_heads
    heads = Heads(count, count, config.d_model // count)
    for index in place.stage(config.decoder_layers):
        layer = f"{place.prefix}.decoder.layers.{index}.layers"
        yield f"{layer}.self_attn.attn", attention(place, f"{layer}.self_attn.attn", heads)
        yield f"{layer}.encoder_attn.attn", cross_attention(place, f"{layer}.encoder_attn.attn", heads)
