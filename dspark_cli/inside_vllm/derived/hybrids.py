"""Decoders that mix attention with layers that keep a state, and those that have states alone."""

from collections.abc import Iterator
from typing import Any

from dspark_cli.inside_vllm.derived.attention import Heads, attention
from dspark_cli.inside_vllm.derived.decoders import divided, own_or_divided
from dspark_cli.inside_vllm.derived.latent import latent_attention
from dspark_cli.inside_vllm.derived.place import NamedLayer, NamedLayers, Place
from dspark_cli.inside_vllm.derived.states import (
    gated_delta_net,
    kimi_delta_attention,
    kimi_k3_delta_attention,
    mamba1,
    mamba2,
    short_convolution,
)
from dspark_cli.inside_vllm.derived.words import FULL, kinds

LINEAR = "linear_attention"
STATE, HEADS = ("mamba", LINEAR), ("attention", FULL)
"""Transformers 5 renames the words of older configurations; vLLM takes both."""


def qwen_delta_net(place: Place) -> NamedLayers:
    """Qwen3-Next and Qwen3.5."""
    types = kinds(place, (FULL, LINEAR))
    for index, name in _layers(place):
        if types[index] == LINEAR:
            yield f"{name}.linear_attn", gated_delta_net(place)
        else:
            yield _attention(place, f"{name}.self_attn.attn", own_or_divided(place.text))


def olmo_delta_net(place: Place) -> NamedLayers:
    types = kinds(place, (FULL, LINEAR))
    for index, name in _layers(place):
        if types[index] == LINEAR:
            yield f"{name}.linear_attn", gated_delta_net(place, always_triton=True)
        else:
            yield _attention(place, f"{name}.self_attn.attn", divided(place.text))


def kimi_linear(place: Place) -> NamedLayers:
    """Kimi Linear and the language model of Kimi K3."""
    geometry = place.text.linear_attn_config
    delta_attention = kimi_k3_delta_attention if geometry.get("use_full_rank_gate") else kimi_delta_attention
    for index, name in _layers(place):
        if place.text.is_kda_layer(index):
            yield f"{name}.self_attn", delta_attention(place, geometry)
        else:
            yield f"{name}.self_attn", latent_attention(place, f"{name}.self_attn")


def nemotron_h(place: Place) -> NamedLayers:
    text = place.text
    pattern = text.hybrid_override_pattern
    for index in place.stage(len(pattern)):
        name = f"{place.prefix}model.layers.{index}.mixer"
        kind = pattern[index]
        if kind == "M":
            yield (
                name,
                mamba2(
                    place,
                    inner_size=text.mamba_num_heads * text.mamba_head_dim,
                    groups=text.n_groups,
                    heads=text.mamba_num_heads,
                    head_size=text.mamba_head_dim,
                    state_size=text.ssm_state_size,
                    conv_kernel=text.conv_kernel,
                ),
            )
        elif kind == "*":
            yield _attention(place, f"{name}.attn", own_or_divided(text), window=getattr(text, "sliding_window", None))
        elif kind not in "-E":
            raise place.unknown(f"layer type {kind!r} (layer {index}) is not known")


def falcon_h1(place: Place) -> NamedLayers:
    """Each layer has both; vLLM numbers the states after all attention layers, and names them after the first word."""
    text = place.text
    root = place.prefix.partition(".")[0] if place.prefix else "model"
    for index, name in _layers(place):
        yield _attention(place, f"{name}.attn", own_or_divided(text))
        inner = text.mamba_d_ssm or int(text.mamba_expand * text.hidden_size)
        yield f"{root}.{text.num_hidden_layers + index}.mixer", _mamba2_as_bamba(place, inner)


def granite_hybrid(place: Place) -> NamedLayers:
    text = place.text
    types = kinds(place, (*STATE, *HEADS))
    for index, name in _layers(place):
        if types[index] in STATE:
            yield f"{name}.mixer", _mamba2_as_bamba(place, text.mamba_expand * text.hidden_size)
        else:
            yield _attention(place, f"{name}.self_attn.attn", divided(text))


def jamba(place: Place) -> NamedLayers:
    text = place.text
    types = kinds(place, (*STATE, *HEADS), word="layers_block_type")
    for index, name in _layers(place):
        if types[index] in STATE:
            yield (
                f"{name}.mixer",
                mamba1(
                    place,
                    inner_size=text.mamba_expand * text.hidden_size,
                    state_size=text.mamba_d_state,
                    conv_kernel=text.mamba_d_conv,
                ),
            )
        else:
            yield _attention(place, f"{name}.attn", divided(text))


def lfm2(place: Place) -> NamedLayers:
    text = place.text
    types = kinds(place, (FULL, "conv"))
    for index, name in _layers(place):
        if types[index] == "conv":
            size = getattr(text, "conv_dim", None) or text.hidden_size
            yield f"{name}.short_conv", short_convolution(place, size=size, kernel=text.conv_L_cache)
        else:
            yield _attention(place, f"{name}.self_attn.attn", divided(text))


def pure_mamba1(place: Place) -> NamedLayers:
    text = place.text
    for _, name in _layers(place, root="backbone"):
        yield (
            f"{name}.mixer",
            mamba1(place, inner_size=text.intermediate_size, state_size=text.state_size, conv_kernel=text.conv_kernel),
        )


def pure_mamba2(place: Place) -> NamedLayers:
    text = place.text
    for _, name in _layers(place, root="backbone"):
        yield (
            f"{name}.mixer",
            mamba2(
                place,
                inner_size=getattr(text, "intermediate_size", None) or text.expand * text.hidden_size,
                groups=text.n_groups,
                heads=text.num_heads,
                head_size=text.head_dim,
                state_size=text.state_size,
                conv_kernel=text.conv_kernel,
            ),
        )


def _layers(place: Place, root: str = "model") -> Iterator[tuple[int, str]]:
    for index in place.stage(place.text.num_hidden_layers):
        yield index, f"{place.prefix}{root}.layers.{index}"


def _attention(place: Place, name: str, head_size: int, window: int | None = None) -> NamedLayer:
    heads = Heads(place.text.num_attention_heads, place.text.num_key_value_heads, head_size)
    return name, attention(place, name, heads, window=window)


def _mamba2_as_bamba(place: Place, inner_size: int) -> Any:
    text = place.text
    return mamba2(
        place,
        inner_size=inner_size,
        groups=text.mamba_n_groups,
        heads=text.mamba_n_heads,
        head_size=text.mamba_d_head,
        state_size=text.mamba_d_state,
        conv_kernel=text.mamba_d_conv,
    )
