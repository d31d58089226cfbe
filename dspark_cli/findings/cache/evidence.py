"""What the checks of a KV cache plan look at."""

from dataclasses import dataclass

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup, LayerKind

NOTICEABLE_SHARE = 0.10
"""Of a sequence's bytes. One sequence in ten is what a user would notice. Aligning pages of state costs less (1.3 and
3% in the recorded plans of a hybrid target), and nobody can do anything about it."""


COST = "cost_bytes"
"""In a finding's evidence: the bytes of a full sequence that it is about. Findings of one severity come by it."""
WIDTH_IS_HYPOTHETICAL = "vLLM has no option for the group width, so group-width shows only what another would do"
LAYOUT_OPTION = "VLLM_KV_CACHE_LAYOUT sets the layout"


@dataclass(frozen=True)
class CacheEvidence:
    plan: CachePlan
    alone: CachePlan | None
    """The target without its drafter, under the same settings."""
    release: str | None
    """Of vLLM, such as 0.32."""
    told_backends: tuple[str, ...] = ()
    """Attention backends of the draft layers, as a running engine tells them."""

    @property
    def draft_backends(self) -> list[str]:
        planned = (kind.backend for kind in self.plan.layer_kinds if kind.role == "draft")
        return sorted({*planned, *self.told_backends})

    def release_is_at_least(self, wanted: str) -> bool | None:
        """None where the release is not known."""
        return _numbers(self.release) >= _numbers(wanted) if self.release else None

    @property
    def is_of_an_engine(self) -> bool:
        """Whether a running engine was asked: nothing else can be planned from what it keeps."""
        return self.alone is None and not self.plan.layer_kinds

    @property
    def has_draft_layers(self) -> bool:
        return any(group.draft_layers for group in self.plan.groups)


def compare(evidence: CacheEvidence, *changes: str) -> str:
    """How to plan the changes beside the deployment, such as `block-size=32`."""
    asked = " ".join(f"--what-if {change}" for change in changes)
    return (
        f"plan it with models: inspect-cache --model ... {asked}" if evidence.is_of_an_engine else f"compare: {asked}"
    )


def layout_to_compare(plan: CachePlan) -> tuple[str, ...]:
    """Nothing where pages are packed already."""
    return () if is_packed(plan) else ("layout",)


def share_of(part: int, total: int) -> float:
    """0 where there is nothing to share: a plan whose memory holds no block."""
    return part / total if total else 0.0


def draft_groups(plan: CachePlan) -> list[KVCacheGroup]:
    """Those with layers of the drafter only."""
    return [group for group in plan.groups if group.role == "draft"]


def groups_with_target(plan: CachePlan) -> list[KVCacheGroup]:
    return [group for group in plan.groups if group.role != "draft"]


def is_packed(plan: CachePlan) -> bool:
    """Whether all layers of a block lie together (BLNHC and its like): pages then need no common size."""
    return bool(plan.layout and plan.layout.startswith("B"))


def block_span(group: KVCacheGroup, plan: CachePlan) -> int:
    """Tokens of a sequence that a block stands for, over all context parallel ranks."""
    return group.block_tokens * (plan.policy.decode_context_parallel if group.sharded else 1)


def described(kind: LayerKind | KVCacheGroup) -> str:
    window = f" {kind.window}" if kind.window is not None else ""
    return f"{kind.role} {kind.kind}{window}"


def gib(size: float) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.2f} MiB"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2] if part.isdecimal())
