"""The words of a config.json that decide what a layer caches, and the refusal of those that nobody here reads."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from dspark_cli.inside_vllm.derived.place import Place

FULL, SLIDING = "full_attention", "sliding_attention"

CHANGES_THE_CACHE = re.compile(
    r"layer_types|layers?_block_type|block_configs|override_pattern|full_attention_interval|attn_layer_|hybrid|per_layer"
    r"|lora_rank|index_|indexer|compress"
    r"|kv_shar|shared_kv|kv_reuse|cla_|yoco"
    r"|swa_|sliding|window|chunk_size$|chunked|dual_chunk|global_|sink|topk_freq|no_rope_layers|nope"
    r"|mamba|ssm|state_size|conv|^linear_|kda|delta|retention|rwkv|recurr"
    r"|num_key_value_heads|kv_channels|(^|_)kv_head|head_dim|(^|_)v_head"
)
"""Names of such words. Among those found, an architecture's derivation states which it reads or may pass over."""

READ_EVERYWHERE = frozenset({"num_key_value_heads", "head_dim", "sliding_window", "layer_types"})
"""What every derivation reads, or refuses where it does not understand it."""

WITHOUT_EFFECT = frozenset({"chunk_size_feed_forward", "mlp_layer_types", "max_window_layers", "use_sliding_window"})
"""vLLM's attention does not read them: Transformers has made `layer_types` and `sliding_window` of the last two."""

MADE_INTO_LAYER_TYPES = frozenset({"sliding_window_pattern", "_sliding_window_pattern"})

MOST_SHOWN = 4

EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})


def refuse_unread_words(place: Place, read: Iterable[str]) -> None:
    """Raises UnknownLayerKind for a word that may change the cache and is not in `read`, where mamba_* reads many."""
    known = [*READ_EVERYWHERE, *WITHOUT_EFFECT, *read]
    if getattr(place.text, "layer_types", None):
        known += MADE_INTO_LAYER_TYPES
    unread = [
        f"{word} = {_short(value)}"
        for word, value in sorted(place.text.to_dict().items())
        if value not in EMPTY
        and CHANGES_THE_CACHE.search(word)
        and not any(fnmatchcase(word, pattern) for pattern in known)
    ]
    if not place.is_drafter and getattr(place.text, "is_causal", None) is False:
        unread.append("is_causal = False")
    if unread:
        more = f" and {len(unread) - MOST_SHOWN} more" if len(unread) > MOST_SHOWN else ""
        raise place.unknown(f"its config.json has {', '.join(unread[:MOST_SHOWN])}{more}, which may change the cache")


def kinds(place: Place, known: Iterable[str], word: str = "layer_types") -> list[str]:
    """The list `word` of the configuration, one kind a layer.

    Raises:
        UnknownLayerKind: a kind is not among the `known` ones.
    """
    listed = list(getattr(place.text, word))
    for index, kind in enumerate(listed):
        if kind not in known:
            raise place.unknown(f"layer type {kind!r} (layer {index}) is not known")
    return listed


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
