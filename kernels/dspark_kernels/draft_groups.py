"""The KV cache groups of a drafter: their block sizes, what they can hide together, and their tables by address.

All draft groups of a request share one sequence length, so what is hidden is one token count for all of them. It must
be whole blocks in each: a multiple of every group's block size. A context-parallel group counts *virtual* blocks: a row
entry stands for block_size * cp_size consecutive tokens, of which each rank stores block_size, dealt out in runs of
`cp_interleave` tokens. The interleave divides block_size, so a virtual block holds whole rounds of the deal: hiding
whole virtual blocks takes the same block_size tokens from every rank, moves every rank's row by the same number of
entries, and leaves the owner of every remaining position what it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

import torch

from dspark_kernels.launch_checks import require_table


@dataclass(frozen=True)
class DraftGroup:
    """One draft KV cache group.

    block_size: tokens a block on one rank. cp_size: ranks that share a sequence (1 for a replicated group).
    cp_interleave: consecutive tokens a rank gets before the next rank's turn.
    sliding_window: tokens that a query sees back, 0 for full attention; restored slots further back never matter.
    """

    block_size: int
    cp_size: int = 1
    cp_interleave: int = 1
    sliding_window: int = 0

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.cp_size < 1 or self.cp_interleave < 1 or self.sliding_window < 0:
            raise ValueError(f"sizes must be positive, and sliding_window not negative: {self}")
        if self.cp_size > 1 and self.block_size % self.cp_interleave:
            raise ValueError(f"the interleave {self.cp_interleave} must divide the block size {self.block_size}")

    @property
    def virtual_block_size(self) -> int:
        """Tokens that one entry of a block-table row stands for."""
        return self.block_size * self.cp_size


def hidden_alignment(groups: Sequence[DraftGroup]) -> int:
    """Tokens that a hidden length must be a multiple of: the least common multiple of the groups' virtual block sizes.

    Raises ValueError for no group.
    """
    if not groups:
        raise ValueError("a drafter has at least one KV cache group")
    return lcm(*(group.virtual_block_size for group in groups))


class GroupTensors:
    """One int32 tensor a draft group, by address, so that one launch serves all groups.

    Made once, outside any graph capture; the tensors are kept alive and must keep their memory. `addresses` is int64
    [groups], `row_strides` int64 [groups] in entries (0 for vectors), `lengths` int32 [groups] the last dimension.
    """

    def __init__(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Raise ValueError for no tensor, several devices, one memory twice, or what is no int32 table or vector."""
        if not tensors:
            raise ValueError(f"{name} needs one tensor a draft group")
        for tensor in tensors:
            require_table(name, tensor.unsqueeze(0) if tensor.dim() == 1 else tensor)
            if tensor.device != tensors[0].device:
                raise ValueError(f"{name} are on several devices: {tensor.device} and {tensors[0].device}")
        if len({tensor.data_ptr() for tensor in tensors}) < len(tensors):
            raise ValueError(f"two draft groups share the memory of one of {name}; a launch would treat it twice")
        self.tensors = tuple(tensors)
        self.device = tensors[0].device
        self.addresses = self._vector([tensor.data_ptr() for tensor in tensors], torch.int64)
        self.row_strides = self._vector([t.stride(0) if t.dim() == 2 else 0 for t in tensors], torch.int64)
        self.lengths = self._vector([tensor.shape[-1] for tensor in tensors], torch.int32)

    def _vector(self, values: list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)


class DraftBlockTables(GroupTensors):
    """The block tables of all draft groups, int32 [requests, max_blocks of the group] each, with the groups' sizes."""

    def __init__(self, groups: Sequence[DraftGroup], tables: Sequence[torch.Tensor]) -> None:
        """Raise ValueError if the tables do not fit the groups, see `GroupTensors`."""
        super().__init__("block tables", tables)
        if len(groups) != len(tables) or any(table.dim() != 2 for table in tables):
            raise ValueError(f"{len(groups)} draft groups need as many block tables, got {len(tables)}")
        self.groups = tuple(groups)
        self.alignment = hidden_alignment(groups)
        self.rows = min(table.shape[0] for table in tables)
        self.max_blocks = max(table.shape[1] for table in tables)
        self.virtual_block_sizes = self._vector([group.virtual_block_size for group in groups], torch.int32)
        self.sliding_windows = self._vector([group.sliding_window for group in groups], torch.int32)
