"""The KV cache that vLLM makes for a target and its drafter. `inside_vllm.plan_cache` fills these fields."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KVCacheGroup:
    """Layers that share one block table.

    `role` is target, draft, or shared where layers of both are in it. `window` is in tokens. `draft_flag` says whether
    the scheduler treats the group as the drafter's.
    """

    role: str
    kind: str
    layers: tuple[str, ...]
    draft_layers: int
    """How many of them are the drafter's."""
    block_tokens: int
    page_bytes: int
    """Bytes that a block of one layer needs."""
    padded_page_bytes: int
    """Bytes that it is given."""
    block_bytes: int
    """padded_page_bytes over all layers of the group."""
    window: int | None
    draft_flag: bool


@dataclass(frozen=True)
class CachePlan:
    """Groups, and what they make of the memory. Capacity is None where no memory size was given."""

    groups: tuple[KVCacheGroup, ...]
    memory_bytes: int | None
    pool_bytes_per_block: int
    blocks: int | None
    kv_tokens: int | None
    full_sequences: float | None
    """How many sequences of max_model_len fit at once."""
    max_model_len: int
    layout: str | None
    platform: str

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> "CachePlan":
        groups = tuple(KVCacheGroup(**{**group, "layers": tuple(group["layers"])}) for group in answer["groups"])
        return cls(**{**answer, "groups": groups})
