"""Where the bytes go that a sequence of the full length takes of the pool, on one GPU of each pipeline stage."""

from dataclasses import dataclass
from fractions import Fraction

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup


@dataclass(frozen=True)
class CacheBytes:
    """A partition: the parts add up to `total`, the bytes of one full-length sequence."""

    useful: int
    """What the last step reads, each byte held by one rank."""
    copies: int
    """The same bytes again, held by other ranks too."""
    page_padding: int
    """The ends of pages that were padded to a common size."""
    group_padding: int
    """The rest of a block whose group has fewer bytes than the pool's block."""
    window_blocks: int
    """Blocks kept beyond a window: for tokens in flight, and because a window starts in the middle of a block."""
    spare_states: int
    """States kept for drafts and for prefix hits, beside the one that is read."""
    last_block: int
    """The unused end of the last block."""
    total: int


def where_bytes_go(plan: CachePlan) -> CacheBytes:
    groups = [_of_group(group, plan.replica_bytes_per_block) for group in plan.groups]
    names = list(CacheBytes.__dataclass_fields__)
    return CacheBytes(**{name: sum(getattr(part, name) for part in groups) for name in names})


def _of_group(group: KVCacheGroup, bytes_per_block: int) -> CacheBytes:
    blocks = group.blocks_per_sequence
    needed = blocks * group.useful_block_bytes
    read = min(needed, _bytes_read(group))
    beyond = needed - read
    windowed = group.window is not None and not group.is_state
    copies = read * group.copied_block_bytes // group.useful_block_bytes if group.useful_block_bytes else 0
    return CacheBytes(
        useful=read - copies,
        copies=copies,
        page_padding=blocks * (group.block_bytes - group.useful_block_bytes),
        group_padding=blocks * (bytes_per_block - group.block_bytes),
        window_blocks=beyond if windowed else 0,
        spare_states=beyond if group.is_state else 0,
        last_block=0 if windowed or group.is_state else beyond,
        total=blocks * bytes_per_block,
    )


def _bytes_read(group: KVCacheGroup) -> int:
    if group.useful_tokens_per_sequence is None:
        return group.useful_block_bytes
    return int(Fraction(group.useful_block_bytes, group.block_tokens) * group.useful_tokens_per_sequence)
