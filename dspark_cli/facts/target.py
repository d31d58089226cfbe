"""What a target's config.json says about what a drafter needs of it."""

from dataclasses import dataclass
from typing import Any

from dspark_cli.sources.checkpoint import Checkpoint, positive_int

RECURRENT_KINDS = frozenset({"linear_attention", "mamba", "recurrent", "conv"})


@dataclass(frozen=True)
class Target:
    """Fields that config.json leaves open are None. `recurrent` says whether layers keep a state (Mamba, linear
    attention), of which vLLM keeps one for each drafted token."""

    name: str
    architectures: tuple[str, ...]
    layers: int | None
    hidden_size: int | None
    vocabulary: int | None
    longest: int | None
    recurrent: bool
    multimodal: bool
    latent: bool | None
    """Latent attention (MLA), or DeepSeek-V4's; None where there is no config.json to look at."""
    windows_beside_full: bool
    """Whether some layers attend over a sliding window and others over everything."""


def target_facts(checkpoint: Checkpoint) -> Target:
    text = checkpoint.config.get("text_config")
    config = {**checkpoint.config, **(text if isinstance(text, dict) else {})}
    return Target(
        checkpoint.name,
        tuple(checkpoint.architectures),
        positive_int(config.get("num_hidden_layers")),
        positive_int(config.get("hidden_size")),
        positive_int(config.get("vocab_size")),
        positive_int(config.get("max_position_embeddings")),
        _is_recurrent(config),
        isinstance(text, dict) and any(name in checkpoint.config for name in ("vision_config", "audio_config")),
        _is_latent(config) if config else None,
        _kinds(config) >= {"sliding_attention", "full_attention"},
    )


def _kinds(config: dict[str, Any]) -> set[str]:
    kinds = config.get("layer_types")
    return set(map(str, kinds)) if isinstance(kinds, list) else set()


def _is_latent(config: dict[str, Any]) -> bool:
    return positive_int(config.get("kv_lora_rank")) is not None or bool(config.get("compress_ratios"))


def _is_recurrent(config: dict[str, Any]) -> bool:
    kinds = [config.get(name) for name in ("layer_types", "layers_block_type")]
    if any(isinstance(kind, list) and RECURRENT_KINDS.intersection(map(str, kind)) for kind in kinds):
        return True
    pattern = config.get("hybrid_override_pattern")
    return (
        (isinstance(pattern, str) and "M" in pattern)
        or isinstance(config.get("linear_attn_config"), dict)
        or (positive_int(config.get("full_attention_interval")) or 1) > 1
    )
