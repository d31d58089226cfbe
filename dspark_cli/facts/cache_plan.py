"""The KV cache that vLLM makes for a target and its drafter. `inside_vllm.plan_facts` fills these fields."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KVCacheGroup:
    """Layers that share one block table, as one GPU holds them.

    `role` is target, draft, or shared where layers of both are in it. Bytes are of one block on one GPU.
    """

    role: str
    kind: str
    layers: tuple[str, ...]
    draft_layers: int
    """How many of them are the drafter's."""
    block_tokens: int
    page_bytes: int
    """What a block of one layer needs; of the largest layer where they differ."""
    padded_page_bytes: int
    """What it is given."""
    useful_block_bytes: int
    """What a block needs over all layers of the group."""
    block_bytes: int
    """What it is given over all layers; the pool's block may be larger still, for a wider group."""
    window: int | None
    """Tokens, or None where every token is kept."""
    draft_flag: bool
    """Whether the scheduler takes the group for the drafter's, and drops the trailing block of its prefix hits."""
    sharded: bool
    """Whether context parallel ranks hold different tokens of it."""
    blocks_per_sequence: int
    """Blocks that a sequence of the full length holds at most."""
    useful_tokens_per_sequence: int | None
    """Tokens of such a sequence that its last step reads; None for a state, which has no tokens."""
    copies: int
    """Ranks that hold the same bytes, because there are fewer KV heads than ranks; of the layer with most."""
    copied_block_bytes: int
    """How many of the useful bytes are such copies, one rank's counted as the original."""
    bucket: int = 0
    """Groups with the same number have layers of one specification, which vLLM dealt to several groups."""

    @property
    def is_state(self) -> bool:
        return self.useful_tokens_per_sequence is None


@dataclass(frozen=True)
class LayerKind:
    """Layers with one specification, before vLLM groups them and makes their pages equal."""

    role: str
    kind: str
    layers: int
    block_tokens: int
    page_bytes: int
    window: int | None
    backend: str


@dataclass(frozen=True)
class CachePolicy:
    """What beside the groups decides how much fits and what a prefix hit reaches. Tokens throughout."""

    tensor_parallel: int
    pipeline_parallel: int
    decode_context_parallel: int
    hybrid_manager: bool
    prefix_caching: bool
    block_drop: bool
    """Whether the trailing block of a prefix hit is dropped for the drafter's sake."""
    method: str | None
    draft_tokens: int | None
    drafter_trained_tokens: int | None
    """The drafter's max_position_embeddings."""
    scheduler_block_tokens: int | None
    hash_block_tokens: int | None
    hit_alignment_tokens: int | None
    """A prefix hit ends at a multiple of this."""
    kv_dtype: str
    max_batched_tokens: int
    model_runner: str
    """V1 or V2, vLLM's two generations of it."""
    sleep_mode: bool


@dataclass(frozen=True)
class CachePlan:
    """Groups, and what they make of the memory. Capacity is None where no memory size was given."""

    groups: tuple[KVCacheGroup, ...]
    memory_bytes: int | None
    """For the KV cache on one GPU."""
    pool_bytes_per_block: int
    blocks: int | None
    kv_tokens: int | None
    full_sequences: float | None
    """How many sequences of max_model_len fit at once."""
    max_model_len: int
    layout: str | None
    platform: str
    policy: CachePolicy
    layer_kinds: tuple[LayerKind, ...] = ()
    """Empty where a running engine was asked: it keeps the result only."""
    stages: tuple["StagePlan", ...] = ()
    """Pipeline stages where there are several."""
    sources: tuple[tuple[str, str], ...] = ()
    """Model -> how its layer specifications were had."""
    weight_bytes: int | None = None
    """Of target and drafter on one GPU."""
    largest_length: int | None = None
    """The longest sequence that fits, where one of max_model_len does not; 0 where none does."""
    planned_in_s: float | None = None
    memory_estimated: bool = False
    """Whether `memory_bytes` is what weights leave of a GPU: an upper bound."""

    @property
    def blocks_per_sequence(self) -> int:
        """Blocks that a sequence of the full length takes, of all groups."""
        return sum(group.blocks_per_sequence for group in self.groups)

    @property
    def replica_bytes_per_block(self) -> int:
        """A block's bytes over all pipeline stages, on one GPU of each."""
        return sum(stage.pool_bytes_per_block for stage in self.stages) or self.pool_bytes_per_block

    @property
    def tokens_per_gib(self) -> float:
        """Capacity without a memory size: KV tokens for each GiB of a GPU, in sequences of the full length."""
        return self.max_model_len * (1 << 30) / (self.pool_bytes_per_block * self.blocks_per_sequence)

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> "CachePlan":
        made = {
            "groups": tuple(KVCacheGroup(**{**group, "layers": tuple(group["layers"])}) for group in answer["groups"]),
            "policy": CachePolicy(**answer["policy"]),
            "layer_kinds": tuple(LayerKind(**kind) for kind in answer.get("layer_kinds", ())),
            "stages": tuple(
                StagePlan(**{**stage, "layers": tuple(stage["layers"])}) for stage in answer.get("stages", ())
            ),
            "sources": tuple((str(model), str(source)) for model, source in answer.get("sources", ())),
        }
        return cls(**{**answer, **made})


@dataclass(frozen=True)
class StagePlan:
    """One pipeline stage: how many layers of each group it holds, and its pool."""

    stage: int
    layers: tuple[int, ...]
    pool_bytes_per_block: int
    blocks_it_could_hold: int | None
    """Before all stages are cut to the smallest."""
