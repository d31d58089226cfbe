"""What a drafter's config.json says about how it drafts."""

from dataclasses import dataclass
from typing import Any

from dspark_cli.sources.checkpoint import Checkpoint, Method, positive_int, samples_from_anchor

XPRESS = frozenset({"Qwen3XPressModel", "DFlashQwen3XPressModel"})
SLIDING = "sliding_attention"
IN_TARGET = frozenset({"DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration", "DeepseekV41ForCausalLM"})
TAKES_TARGETS_WIDTH = frozenset({"DFlashLagunaForCausalLM"})
CANDIDATE_HEADS = frozenset({"DFlash2DraftModel", "DFlash2BeamDraftModel", "LiLiCorrDraftModel"})
"""Heads that only model runner V2 calls; V1 would draft without them, silently."""


@dataclass(frozen=True)
class Drafter:
    """Fields that config.json leaves open are None.

    `trained_tokens` is how many a draft step yields as trained, `query_tokens_extra` what its query has beside them
    (the known token where drafts are filled in behind it). `non_causal` says whether any layer lets draft positions
    see later ones; `full_layers` and `sliding_layers` count its attention.
    """

    name: str
    method: Method
    architectures: tuple[str, ...]
    trained_tokens: int | None
    query_tokens_extra: int
    samples_from_anchor: bool
    non_causal: bool
    causal: bool
    """Whether any layer is causal: a drafter may have both kinds."""
    full_layers: int
    sliding_layers: int
    latent: bool
    """Latent attention (MLA)."""
    head_dim: int | None
    vocabulary: int | None
    hidden_size: int | None
    longest: int | None
    """max_position_embeddings"""
    rope_only_sizes_a_table: bool
    """Whether vLLM may serve longer sequences than that by making the table of rotary positions longer."""
    target_layers: int | None
    """How many layers the target has that it was trained for."""
    read_layers: tuple[int, ...]
    """The target's layers whose hidden states it reads."""
    target_hidden_size: int | None
    confidence_head: bool
    in_target: bool
    """The drafter is part of the target's checkpoint (DeepSeek-V4)."""
    sinks: bool
    """Its attention has sinks."""
    takes_targets_width: bool
    """It reads hidden states of whatever width the target has."""

    @property
    def mixed(self) -> bool:
        return bool(self.full_layers and self.sliding_layers)

    @property
    def layers_in_cache(self) -> int | None:
        """How many layers it gives a KV cache; None where vLLM builds them by other rules than its layers."""
        by_other_rules = self.in_target or self.is_xpress or self.has_candidate_head
        return None if by_other_rules else (self.full_layers + self.sliding_layers) or None

    @property
    def is_xpress(self) -> bool:
        return bool(XPRESS.intersection(self.architectures))

    @property
    def has_candidate_head(self) -> bool:
        return bool(CANDIDATE_HEADS.intersection(self.architectures))


CACHE_ONLY_ROPE = ("default", "linear", "llama3", "ntk", "proportional")
"""vLLM 0.33 config/speculative.py: _CACHE_ONLY_ROPE_TYPES."""


def drafter_facts(checkpoint: Checkpoint, method: Method, trained_tokens: int | None) -> Drafter:
    """Of a drafter's checkpoint; causality and windows by the rules of vLLM's models/qwen3_dflash.py."""
    config = _flat(checkpoint.config)
    architectures = tuple(checkpoint.architectures)
    full_layers, sliding_layers = _layer_counts(config)
    from_anchor = samples_from_anchor(checkpoint, method)
    in_target = bool(IN_TARGET.intersection(architectures))
    return Drafter(
        name=checkpoint.name,
        method=method,
        architectures=architectures,
        trained_tokens=trained_tokens,
        query_tokens_extra=int(not from_anchor),
        samples_from_anchor=from_anchor,
        non_causal=False in _causalities(checkpoint.config),
        causal=True in _causalities(checkpoint.config),
        full_layers=full_layers,
        sliding_layers=sliding_layers,
        latent=positive_int(config.get("kv_lora_rank")) is not None,
        head_dim=_head_dim(config),
        vocabulary=positive_int(config.get("vocab_size")),
        hidden_size=positive_int(config.get("hidden_size")),
        longest=positive_int(config.get("max_position_embeddings")),
        rope_only_sizes_a_table=all(kind in CACHE_ONLY_ROPE for kind in _rope_types(config)),
        target_layers=positive_int(config.get("target_num_hidden_layers"))
        or (None if "K3DSparkModel" in architectures else positive_int(config.get("num_target_layers"))),
        read_layers=tuple(_read_layers(config)),
        target_hidden_size=positive_int(config.get("target_hidden_size")) or positive_int(config.get("hidden_size")),
        confidence_head=config.get("enable_confidence_head", in_target) is True,
        in_target=in_target,
        sinks=any(config.get(name) is True for name in ("attention_sink_bias", "add_swa_attention_sink_bias")),
        takes_targets_width=bool(TAKES_TARGETS_WIDTH.intersection(architectures)),
    )


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of the model and of drafting together; those of drafting win."""
    parts: dict[str, Any] = dict(config)
    for nested in ("transformer_layer_config", "eagle_config", "dflash_config"):
        within = config.get(nested)
        parts |= within if isinstance(within, dict) else {}
    return parts


def _read_layers(config: dict[str, Any]) -> list[int]:
    """The `speculators` format counts a layer's output as the next one's input: one more."""
    for name, shift in (("target_layer_ids", 0), ("dspark_target_layer_ids", 0), ("aux_hidden_state_layer_ids", 1)):
        named = config.get(name)
        if isinstance(named, list):
            return [layer - shift for layer in named if isinstance(layer, int)]
    return []


def _layer_counts(config: dict[str, Any]) -> tuple[int, int]:
    """Full and sliding layers; `use_swa` makes windows of layers that nobody called sliding.

    Counted, never listed: num_hidden_layers may be any number.
    """
    count, kinds = positive_int(config.get("num_hidden_layers")) or 0, config.get("layer_types")
    told = kinds[:count] if isinstance(kinds, list) and len(kinds) >= count else []
    sliding = told.count(SLIDING)
    if config.get("use_swa") is True and not sliding:
        return 0, count
    return count - sliding, sliding


def _causalities(config: dict[str, Any]) -> set[bool]:
    """Of the layers, as `_dflash_layer_causal` of vLLM's qwen3_dflash.py resolves it, and its `speculators` reader."""
    count = positive_int(_flat(config).get("num_hidden_layers")) or 1
    if "speculators_model_type" in config:
        return {not config.get("sliding_window_non_causal", True)}
    nested = config.get("dflash_config")
    told = (config.get("is_causal"), nested.get("causal") if isinstance(nested, dict) else None)
    for setting in told:
        if setting is not None:
            return {bool(setting)}
    kinds = config.get("layer_types")
    kinds = kinds[:count] if isinstance(kinds, list) else []
    return {kind == SLIDING for kind in kinds} or {False}


def _head_dim(config: dict[str, Any]) -> int | None:
    """The largest, where layers differ."""
    told = [positive_int(config.get(name)) for name in ("head_dim", "global_head_dim")]
    if any(told):
        return max(size for size in told if size)
    hidden, heads = positive_int(config.get("hidden_size")), positive_int(config.get("num_attention_heads"))
    return hidden // heads if hidden and heads else None


def _rope_types(config: dict[str, Any]) -> list[str]:
    """The kinds of rotary positions, one for each kind of layer where they differ."""
    found: list[str] = []
    for name in ("rope_parameters", "rope_scaling"):
        settings = config.get(name)
        if isinstance(settings, dict):
            nested = [value for value in settings.values() if isinstance(value, dict)]
            found += [str(one.get("rope_type", one.get("type", "default"))) for one in nested or [settings]]
    return found
