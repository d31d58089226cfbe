"""What a running server, or its log, says of its KV cache: less than a plan, unless the status plugin answers."""

from dataclasses import dataclass
from enum import StrEnum

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.draft_context import DraftContext


class CacheSource(StrEnum):
    """Where the figures are from, the most exact first."""

    PLUGIN = "the status plugin"
    METRICS = "/metrics"
    LOG = "the server's log"


@dataclass(frozen=True)
class Unknown:
    what: str
    how: str
    """What to do to learn it."""


@dataclass(frozen=True)
class WorkerCache:
    """A plan as the workers of one engine hold it; `workers` are those with this very plan, such as `PP0 TP1`."""

    workers: tuple[str, ...]
    plan: CachePlan


@dataclass(frozen=True)
class PaddingLayers:
    """Layers that vLLM adds to a bucket so that its groups are equally wide."""

    layers: int
    waste_percent: float


@dataclass(frozen=True)
class EngineCache:
    """Figures of the engines named; None, or nothing, where the source does not say."""

    engines: tuple[str, ...]
    blocks: int | None = None
    block_tokens: int | None = None
    """The smallest of all groups."""
    kv_tokens: int | None = None
    full_sequences: float | None = None
    """How many sequences of max_model_len fit at once; a log has two decimals of it."""
    max_model_len: int | None = None
    fitted_from: int | None = None
    """The length before vLLM reduced it to what fits."""
    memory_bytes: int | None = None
    """As asked for with --kv-cache-memory-bytes."""
    memory_gib: float | None = None
    """As the log rounds it; of the worker with the least."""
    layout: str | None = None
    kv_dtype: str | None = None
    prefix_caching: bool | None = None
    hybrid_manager: bool | None = None
    """False where vLLM says that it does without."""
    group_block_tokens: tuple[int, ...] = ()
    """For each group, in tokens of all context parallel ranks."""
    scheduler_block_tokens: int | None = None
    hash_block_tokens: int | None = None
    hit_alignment_tokens: int | None = None
    blocks_that_would_fit: int | None = None
    """Where --num-gpu-blocks-override decided otherwise."""
    raised_block_tokens: int | None = None
    """What vLLM raised the attention block to, so that its page is not smaller than a state's."""
    state_padding_percent: float | None = None
    """By how much vLLM padded the states' pages to the attention page."""
    padding_layers: tuple[PaddingLayers, ...] = ()


@dataclass(frozen=True)
class CacheSummary:
    """What is known of a server's KV cache.

    With the status plugin `workers` has the exact plans and `engines` is empty; from the other sources `engines` has
    one entry for engines of which they say the same.
    """

    source: CacheSource
    where: str
    """The server's URL without credentials, or the log's path."""
    vllm: str | None
    workers: tuple[WorkerCache, ...] = ()
    engines: tuple[EngineCache, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    notes: tuple[str, ...] = ()
    draft_context: DraftContext | None = None
    """Where the status plugin tells it."""
