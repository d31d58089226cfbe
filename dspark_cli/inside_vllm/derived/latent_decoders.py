"""Decoders of multi-head latent attention, dense (DeepSeek V2, V3) and sparse (V3.2)."""

from dspark_cli.inside_vllm.derived.latent import latent_attention, sparse_latent_attention
from dspark_cli.inside_vllm.derived.place import NamedLayers, Place


def deepseek(place: Place) -> NamedLayers:
    sparse = hasattr(place.text, "index_topk")
    for index in place.stage(place.text.num_hidden_layers):
        prefix = f"{place.prefix}model.layers.{index}.self_attn"
        if sparse:
            yield from sparse_latent_attention(place, prefix, index)
        else:
            yield f"{prefix}.attn", latent_attention(place, f"{prefix}.attn")
