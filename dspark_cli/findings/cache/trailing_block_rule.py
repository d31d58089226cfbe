"""How many tokens of a prefix hit are given up for the drafter's sake.

Every group that takes part gives up its last block; the hit then ends where all groups have one, a multiple of the
alignment. So a hit loses a whole alignment unit wherever the shared prefix ends less than a dropped block after such a
multiple, and on average a dropped block. `tests/planning/test_trailing_block_drop.py` runs vLLM's managers for it.
"""

from dataclasses import dataclass

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import block_span

NOTICEABLE_TOKENS = 256
"""What a request with a hit computes anyway: the fourth seed's suffix. Losing as much again doubles its prefill; there
1,536 tokens halved the throughput. A block of 16 is lost in the noise."""


@dataclass(frozen=True)
class TrailingBlock:
    """Tokens throughout."""

    unit: int
    """Between the places where a hit can end."""
    dropped: int
    """The largest block that a group gives up."""
    at_most: int
    """More than the unit where states are kept at fewer places than hits can end at."""

    @property
    def on_average(self) -> int:
        return min(self.dropped, self.unit)

    @property
    def every_time(self) -> bool:
        return self.dropped >= self.unit


def trailing_block(plan: CachePlan, dropping: list[KVCacheGroup]) -> TrailingBlock | None:
    """What is lost where the groups `dropping` give up a block; None where the alignment is not known.

    A group of states never gives one up: drafters have none.
    """
    unit = plan.policy.hit_alignment_tokens
    if unit is None and len(plan.groups) == 1:
        unit = block_span(plan.groups[0], plan)
    if unit is None:
        return None
    dropped = max((block_span(group, plan) for group in dropping if not group.is_state), default=0)
    states = max((group.block_tokens for group in plan.groups if group.is_state), default=0)
    return TrailingBlock(unit, dropped, max(unit, states))


def dropping_groups(plan: CachePlan) -> list[KVCacheGroup]:
    """Flagged groups, or all of them where vLLM flagged none."""
    return [group for group in plan.groups if group.draft_flag] or list(plan.groups)


def drops_blocks(plan: CachePlan) -> bool:
    return plan.policy.block_drop and plan.policy.prefix_caching
