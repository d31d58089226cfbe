"""Block tables for tests: distinct block ids, so that every misplaced entry shows, in rows with or without a gap."""

from collections.abc import Sequence

import torch

GUARD = -7777  # what the gaps between rows hold; a kernel that writes there is out of bounds


def block_table(rows: int, max_blocks: int, device: torch.device, *, gap: int = 0) -> torch.Tensor:
    """int32 [rows, max_blocks] of distinct ids, a view with row stride max_blocks + gap, whose gap holds GUARD."""
    storage = torch.full((rows, max_blocks + gap), GUARD, dtype=torch.int32, device=device)
    table = storage[:, :max_blocks]
    table.copy_(torch.arange(1, rows * max_blocks + 1, dtype=torch.int32).view(rows, max_blocks))
    return table


def gap_of(table: torch.Tensor) -> torch.Tensor:
    """The entries between the rows of a table made by `block_table`."""
    rows, stride = table.shape[0], table.stride(0)
    return table.as_strided((rows, stride), (stride, 1))[:, table.shape[1] :]


def int32(values: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)
