"""Layers that keep a state of fixed size in place of keys and values: Mamba, delta nets, short convolutions."""

from typing import Any

from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from dspark_cli.inside_vllm.derived.place import Place, tensor_parallel
from dspark_cli.inside_vllm.derived.weightless import weightless


def mamba1(place: Place, *, inner_size: int, state_size: int, conv_kernel: int) -> AttentionLayerBase:
    from vllm.model_executor.layers.mamba.mamba_mixer import MambaMixer

    return weightless(
        MambaMixer,
        **_configs(place),
        intermediate_size=inner_size,
        ssm_state_size=state_size,
        conv_kernel_size=conv_kernel,
    )


def mamba2(
    place: Place, *, inner_size: int, groups: int, heads: int, head_size: int, state_size: int, conv_kernel: int
) -> AttentionLayerBase:
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator

    ranks = tensor_parallel()
    if heads % ranks or (groups % ranks and groups != 1):
        raise place.unknown(f"{heads} Mamba heads in {groups} groups do not divide over {ranks} ranks")
    cache = place.config.cache_config
    return weightless(
        MambaMixer2,
        **_configs(place),
        intermediate_size=inner_size,
        n_groups=groups + MambaStateShapeCalculator.extra_groups_for_head_shards(groups, ranks),
        num_heads=heads,
        head_dim=head_size,
        ssm_state_size=state_size,
        conv_kernel_size=conv_kernel,
        num_spec=place.config.num_speculative_tokens,
        use_replayssm=cache.use_replayssm,
        replayssm_buffer_len=cache.replayssm_buffer_len if cache.use_replayssm else None,
        mamba_config=place.config.mamba_config,
    )


def gated_delta_net(place: Place, *, always_triton: bool = False) -> AttentionLayerBase:
    """Qwen's layer, or OLMo's where the kernel is `always_triton`."""
    from vllm.model_executor.layers.mamba.gdn.olmo_gdn_linear_attn import OlmoHybridGatedDeltaNetAttention
    from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import QwenGatedDeltaNetAttention

    return weightless(
        OlmoHybridGatedDeltaNetAttention if always_triton else QwenGatedDeltaNetAttention,
        **_delta_net(place),
        num_k_heads=place.text.linear_num_key_heads,
        num_v_heads=place.text.linear_num_value_heads,
        head_k_dim=place.text.linear_key_head_dim,
        head_v_dim=place.text.linear_value_head_dim,
        conv_kernel_size=place.text.linear_conv_kernel_dim,
        _checkpoint_alignment=None if always_triton else _checkpoint_alignment(place),
    )


def kimi_delta_attention(place: Place, geometry: dict[str, Any]) -> AttentionLayerBase:
    from vllm.model_executor.layers.mamba.gdn.kimi_gdn_linear_attn import KimiGatedDeltaNetAttention

    return weightless(
        KimiGatedDeltaNetAttention,
        **_delta_net(place),
        num_heads=geometry["num_heads"],
        head_dim=geometry["head_dim"],
        conv_size=geometry["short_conv_kernel_size"],
    )


def kimi_k3_delta_attention(place: Place, geometry: dict[str, Any]) -> AttentionLayerBase:
    """Its prefill kernel decides whether states are left inside a prefill."""
    from vllm.models.kimi_k3.nvidia.kda import KimiK3DeltaAttention, resolve_kda_prefill_backend

    layer = weightless(
        KimiK3DeltaAttention,
        **_delta_net(place),
        num_heads=geometry["num_heads"],
        head_dim=geometry["head_dim"],
        conv_size=geometry["short_conv_kernel_size"],
    )
    asked = place.config.additional_config
    layer.kda_prefill_backend = resolve_kda_prefill_backend(
        asked.get("kda_prefill_backend", "auto") if isinstance(asked, dict) else "auto",
        layer.head_dim,
        place.config.model_config.dtype,
        layer.get_state_dtype()[1],
        geometry.get("gate_lower_bound"),
    )
    return layer


def short_convolution(place: Place, *, size: int, kernel: int) -> AttentionLayerBase:
    from vllm.model_executor.layers.mamba.short_conv import ShortConv

    return weightless(
        ShortConv, **_configs(place), conv_dim=size, L_cache=kernel, num_spec=place.config.num_speculative_tokens
    )


def _configs(place: Place) -> dict[str, Any]:
    return {"model_config": place.config.model_config, "cache_config": place.config.cache_config}


def _delta_net(place: Place) -> dict[str, Any]:
    speculative = place.config.speculative_config
    return _configs(place) | {
        "tp_size": tensor_parallel(),
        "num_spec": speculative.num_speculative_tokens if speculative else 0,
        "vllm_config": place.config,
    }


def _checkpoint_alignment(place: Place) -> int | None:
    """Since 0.33 FlashInfer's prefill kernel can leave states inside a prefill, at multiples of this many tokens."""
    from vllm.model_executor.layers.mamba.gdn import qwen_gdn_linear_attn as qwen

    alignment: int | None = getattr(qwen, "FLASHINFER_GDN_CHECKPOINT_ALIGNMENT", None)
    if alignment is None or place.config.cache_config.mamba_cache_mode != "align":
        return None
    return alignment if qwen._resolve_gdn_prefill_backend(place.config)[1] == "flashinfer" else None
