"""A model's attention layers derived from its configuration, by architecture."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from dspark_cli.inside_vllm.derived import decoders, drafters, hybrids, latent_decoders
from dspark_cli.inside_vllm.derived.decoders import Decoder
from dspark_cli.inside_vllm.derived.place import NamedLayers, Place
from dspark_cli.inside_vllm.derived.unknown import UnknownLayerKind
from dspark_cli.inside_vllm.derived.whisper import whisper
from dspark_cli.inside_vllm.derived.words import FULL, refuse_unread_words

__all__ = ["DerivedLayer", "UnknownLayerKind", "derive_layers"]

DerivedLayer: TypeAlias = AttentionLayerBase


@dataclass(frozen=True)
class Family:
    """`reads`: words that may change the cache and that `layers` either reads or knows vLLM's code to ignore."""

    layers: Callable[[Place], NamedLayers]
    reads: frozenset[str]


def derive_layers(config: VllmConfig, model: ModelConfig) -> dict[str, DerivedLayer]:
    """Layer name, as in `static_forward_context`, -> layer, for the pipeline stage that this process takes.

    `model` is the target's `config.model_config`, or the drafter's with a `config` as vLLM makes it for the drafter.
    Like building, this settles the cache dtype in `config.cache_config` where the checkpoint or a backend decides it.

    Raises:
        UnknownLayerKind: the architecture, a layer type or a word of its configuration is not known.
    """
    place = _place(config, model)
    family = _family_of(place)
    refuse_unread_words(place, family.reads)
    with set_current_vllm_config(config):
        layers = dict(family.layers(place))
    if not layers and place.stage(place.text.num_hidden_layers):
        raise place.unknown("no layer was found")
    return layers


def _place(config: VllmConfig, model: ModelConfig) -> Place:
    place = Place(config, model, str(model.architecture))
    if model.hf_text_config is model.hf_config:
        return place
    inner = WRAPPERS.get(place.architecture, {}).get(model.hf_text_config.model_type)
    if inner is None:
        raise place.unknown(
            f"its language model ({model.hf_text_config.model_type}) was never compared with vLLM's own"
        )
    return Place(config, model, inner, LANGUAGE_MODEL)


def _family_of(place: Place) -> Family:
    """An architecture that was never compared is taken where its configuration calls every layer a full one.

    A window is not taken from it: some architectures count one token more, or apply it by a rule of their own.
    """
    if place.architecture in FAMILIES:
        return FAMILIES[place.architecture]
    model = place.model
    attention_alone = not (place.is_drafter or model.use_mla or model.is_hybrid or model.is_encoder_decoder)
    if attention_alone and model.using_transformers_backend():
        return _decoder(reads=("no_rope_layers",))
    types = set(getattr(place.text, "layer_types", None) or ())
    if not attention_alone or types != {FULL}:
        refuse_unread_words(place, ())
        named = f"its layer types ({', '.join(sorted(types))})" if types else "its layers"
        raise place.unknown(f"{named} were never compared with vLLM's own")
    return _decoder()


def _decoder(
    window: decoders.Window = decoders.by_layer_type,
    head_size: Callable[[object], int] = decoders.own_or_divided,
    reads: tuple[str, ...] = (),
    **own: object,
) -> Family:
    return Family(Decoder(window, head_size, **own).layers, frozenset(reads))  # type: ignore[arg-type]


def _family(layers: Callable[[Place], NamedLayers], *reads: str) -> Family:
    return Family(layers, frozenset(reads))


LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
INDEXER = (
    "index_topk",
    "index_n_heads",
    "index_head_dim",
    "index_topk_freq",
    "index_topk_pattern",
    "index_skip_topk_offset",
    "index_share_for_mtp_iteration",
    "indexer_rope_interleave",
    "indexer_types",
)
DELTA_NET = ("linear_*", "full_attention_interval", "mamba_ssm_dtype")
GEMMA_LAYERS = (
    "num_kv_shared_layers",
    "per_layer_config",
    "*_per_layer_input",
    "*global_head_dim",
    "num_global_key_value_heads",
)
MIMO_V2 = ("hybrid_layer_pattern", "*swa_*", "sliding_window_size", "v_head_dim")

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": _decoder(),
    "MistralForCausalLM": _decoder(),
    "Ministral3ForCausalLM": _decoder(),
    "Phi3ForCausalLM": _decoder(),
    "GraniteForCausalLM": _decoder(decoders.of_the_model),
    "InternLM3ForCausalLM": _decoder(),
    "GemmaForCausalLM": _decoder(decoders.of_the_model),
    "Ernie4_5ForCausalLM": _decoder(decoders.of_the_model),
    "MixtralForCausalLM": _decoder(decoders.of_the_model),
    "Qwen2ForCausalLM": _decoder(decoders.of_the_model, decoders.divided),
    "Qwen2MoeForCausalLM": _decoder(decoders.of_the_model, decoders.divided),
    "Qwen3ForCausalLM": _decoder(decoders.of_the_model),
    "Qwen3MoeForCausalLM": _decoder(decoders.of_the_model),
    "OlmoeForCausalLM": _decoder(decoders.of_the_model),
    "Glm4ForCausalLM": _decoder(decoders.of_the_model),
    "Glm4MoeForCausalLM": _decoder(decoders.of_the_model),
    "MiniMaxM2ForCausalLM": _decoder(decoders.of_the_model),
    "Gemma2ForCausalLM": _decoder(),
    "Gemma3ForCausalLM": _decoder(),
    "Gemma3nForCausalLM": _family(decoders.gemma_with_shared_layers, *GEMMA_LAYERS),
    "Gemma4ForCausalLM": _family(decoders.gemma_with_shared_layers, *GEMMA_LAYERS),
    "Cohere2ForCausalLM": _decoder(decoders.one_more),
    "Exaone4ForCausalLM": _decoder(),
    "GptOssForCausalLM": _decoder(decoders.every_other, name="model.layers.{index}.attn.attn", sinks=True),
    "Llama4ForCausalLM": _family(decoders.llama4, "no_rope_layers", "attention_chunk_size"),
    "MiMoV2FlashForCausalLM": _family(decoders.mimo_v2, *MIMO_V2),
    "LagunaForCausalLM": _family(
        decoders.laguna, "num_attention_heads_per_layer", "swa_attention_sink_enabled", "swa_rope_parameters"
    ),
    "DeepseekV2ForCausalLM": _family(latent_decoders.deepseek, *LATENT, *INDEXER),
    "DeepseekV3ForCausalLM": _family(latent_decoders.deepseek, *LATENT, *INDEXER),
    "DeepseekV32ForCausalLM": _family(latent_decoders.deepseek, *LATENT, *INDEXER),
    "GlmMoeDsaForCausalLM": _family(latent_decoders.deepseek, *LATENT, *INDEXER),
    "Glm4MoeLiteForCausalLM": _family(latent_decoders.deepseek, *LATENT),
    "Qwen3NextForCausalLM": _family(hybrids.qwen_delta_net, *DELTA_NET),
    "Qwen3_5ForCausalLM": _family(hybrids.qwen_delta_net, *DELTA_NET),
    "Qwen3_5MoeForCausalLM": _family(hybrids.qwen_delta_net, *DELTA_NET),
    "OlmoHybridForCausalLM": _family(hybrids.olmo_delta_net, *DELTA_NET),
    "KimiLinearForCausalLM": _family(hybrids.kimi_linear, *LATENT, "linear_attn_config", "mla_use_nope"),
    "NemotronHForCausalLM": _family(
        hybrids.nemotron_h,
        "attention_head_dim",
        "*mamba_*",
        "ssm_state_size",
        "*conv*",
        "chunk_size",
        "*layers_block_type",
        "hybrid_*",
    ),
    "FalconH1ForCausalLM": _family(hybrids.falcon_h1, "mamba_*", "ssm_*"),
    "GraniteMoeHybridForCausalLM": _family(hybrids.granite_hybrid, "mamba_*", "layers_block_type"),
    "JambaForCausalLM": _family(hybrids.jamba, "*mamba_*", "attn_layer_*", "layers_block_type"),
    "Lfm2ForCausalLM": _family(hybrids.lfm2, "conv_*", "full_attn_idxs"),
    "MambaForCausalLM": _family(hybrids.pure_mamba1, "state_size", "*conv*"),
    "Mamba2ForCausalLM": _family(hybrids.pure_mamba2, "state_size", "*conv*", "chunk_size"),
    "WhisperForConditionalGeneration": _family(whisper),
    "DFlashDraftModel": _family(drafters.qwen3_drafter),
    "DFlash2DraftModel": _family(drafters.qwen3_drafter),
    "Qwen3DSparkModel": _family(drafters.qwen3_drafter),
    "DFlashLagunaForCausalLM": _family(
        drafters.laguna_drafter, "num_attention_heads_per_layer", "swa_attention_sink_enabled", "swa_rope_parameters"
    ),
    "Gemma4DSparkModel": _family(drafters.gemma4_drafter, *GEMMA_LAYERS),
    "K3DSparkModel": _family(drafters.kimi_k3_drafter, *LATENT),
}

LANGUAGE_MODEL = "language_model."
"""What vLLM puts before the layer names of a multimodal model's language model."""

WRAPPERS: dict[str, dict[str, str]] = {
    "Qwen3VLForConditionalGeneration": {"qwen3_vl_text": "Qwen3ForCausalLM"},
    "Qwen3VLMoeForConditionalGeneration": {"qwen3_vl_moe_text": "Qwen3MoeForCausalLM"},
    "Qwen3_5ForConditionalGeneration": {"qwen3_5_text": "Qwen3_5ForCausalLM"},
    "Qwen3_5MoeForConditionalGeneration": {"qwen3_5_moe_text": "Qwen3_5MoeForCausalLM"},
    "Gemma3ForConditionalGeneration": {"gemma3_text": "Gemma3ForCausalLM"},
    "Gemma4ForConditionalGeneration": {"gemma4_text": "Gemma4ForCausalLM"},
    "Gemma4UnifiedForConditionalGeneration": {"gemma4_unified_text": "Gemma4ForCausalLM"},
    "Llama4ForConditionalGeneration": {"llama4_text": "Llama4ForCausalLM"},
    "Mistral3ForConditionalGeneration": {"mistral": "MistralForCausalLM", "ministral3": "Ministral3ForCausalLM"},
    "KimiK3ForConditionalGeneration": {"kimi_linear": "KimiLinearForCausalLM"},
    "KimiK25ForConditionalGeneration": {"deepseek_v3": "DeepseekV3ForCausalLM"},
}
"""Multimodal architecture -> model type of its language model -> that model's architecture. Encoders cache nothing."""
