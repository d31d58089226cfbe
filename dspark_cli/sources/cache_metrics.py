"""What a server's /metrics says of its KV cache: the labels of vllm:cache_config_info."""

import math
from collections.abc import Mapping

from dspark_cli.errors import CannotSay
from dspark_cli.facts.cache_summary import CacheSource, CacheSummary, EngineCache, Unknown
from dspark_cli.sources.server_metrics import Scrape

METRIC = "vllm:cache_config_info"
LARGEST_COUNT = 1 << 63


def summary_of_metrics(scrape: Scrape, how_to_learn_more: str) -> CacheSummary:
    """The summary of one scrape.

    Raises:
        CannotSay: that metric is not in it, as for a model without a cache.
    """
    engines_by_labels: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for sample in scrape.named(METRIC):
        labels = dict(sample.labels)
        engine = labels.pop("engine", "0")
        engines_by_labels.setdefault(tuple(sorted(labels.items())), []).append(engine)
    if not engines_by_labels:
        raise CannotSay(f"{scrape.url} is a vLLM server whose /metrics say nothing of a KV cache", how_to_learn_more)
    alike = [_engine(dict(labels), sorted(names)) for labels, names in engines_by_labels.items()]
    return CacheSummary(
        source=CacheSource.METRICS,
        where=scrape.url,
        vllm=None,
        engines=tuple(alike),
        unknown=(
            Unknown("KV cache groups, page sizes and which layers are the drafter's", how_to_learn_more),
            Unknown("the layout, and where prefix hits can end", how_to_learn_more),
        ),
        notes=tuple(
            _sum_note(engine, dict(labels))
            for engine, labels in zip(alike, engines_by_labels, strict=True)
            if len(engine.engines) > 1
        ),
    )


def _engine(labels: Mapping[str, str], names: list[str]) -> EngineCache:
    tokens, sequences = _count(labels, "kv_cache_size_tokens"), _number(labels, "kv_cache_max_concurrency")
    return EngineCache(
        engines=tuple(names),
        blocks=_count(labels, "num_gpu_blocks") if len(names) == 1 else None,
        block_tokens=_count(labels, "block_size"),
        kv_tokens=tokens,
        full_sequences=sequences,
        max_model_len=_length(tokens, sequences),
        memory_bytes=_count(labels, "kv_cache_memory_bytes"),
        layout=_name(labels, "kv_cache_layout"),
        kv_dtype=_name(labels, "cache_dtype"),
        prefix_caching={"True": True, "False": False}.get(labels.get("enable_prefix_caching", "")),
        hash_block_tokens=_count(labels, "hash_block_size"),
        hit_alignment_tokens=_count(labels, "cache_hit_alignment_tokens"),
    )


def _sum_note(engine: EngineCache, labels: Mapping[str, str]) -> str:
    """vLLM's front end adds up the blocks of its engines, and keeps the other figures of the first that answered."""
    together = _count(labels, "num_gpu_blocks")
    blocks = f"{together:,} blocks" if together else "an unknown number of blocks"
    return f"engines {', '.join(engine.engines)} have {blocks} together; the other figures are of one, shown for all"


def _length(tokens: int | None, sequences: float | None) -> int | None:
    """max_model_len, where the two leave one choice: vLLM cuts sequences x length down to whole tokens."""
    if not tokens or not sequences:
        return None
    if (tokens + 1) / sequences >= LARGEST_COUNT:
        return None
    # A margin for the last binary digit of the product that vLLM cut down.
    shortest, longest = math.ceil(tokens / sequences - 1e-6), math.ceil((tokens + 1) / sequences + 1e-6) - 1
    return shortest if 0 < shortest == longest else None


def _count(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return value if 0 < value < LARGEST_COUNT else None


def _number(labels: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(labels.get(name, ""))
    except ValueError:
        return None
    return value if 1 / LARGEST_COUNT < value < LARGEST_COUNT else None


def _name(labels: Mapping[str, str], name: str) -> str | None:
    text = labels.get(name, "None")
    return None if text == "None" else text
