"""Build the row store of a worker: find the cells of every draft layer by writing with the drafter itself."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dspark_kernels.cache_cells import CellsNotFound, find_cells
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.written_rows import GroupRows, WrittenRows, row_cells

from dspark_cli.draft_context.context import RowStore

StoreRows = Callable[[torch.Tensor, int], None]
"""Store random context rows at these slots (int64, none negative) of the draft layers of one group, by its number.

Only of that group: its slots may be another group's real blocks, where their sizes differ.
"""


@dataclass(frozen=True)
class DraftLayers:
    """The draft layers of one KV cache group. caches: one tensor a layer. num_slots: tokens the group's blocks hold."""

    group: DraftGroup
    caches: Sequence[torch.Tensor]
    num_slots: int
    cp_rank: int = 0


@torch.inference_mode()
def build_row_store(
    draft_groups: Iterable[DraftLayers], store_rows: StoreRows, device: torch.device, remembered: int = 1
) -> RowStore:
    """Before any request runs: block 0 of the caches, vLLM's null block, is written, and zeroed in the end.

    remembered: cachefuls of other rows after which one may be forgotten.

    Raises:
        CellsNotFound: a cache does not keep its rows in cells of their own.
        ValueError: the layers of a group differ too much.
    """
    groups: list[GroupRows] = []
    num_slots = 0
    for number, layers in enumerate(draft_groups):
        write = _skipping(store_rows, number)
        cells = [find_cells(cache, layers.num_slots, write) for cache in layers.caches]
        groups.append(GroupRows(layers.group, row_cells(cells), layers.cp_rank))
        num_slots = max(num_slots, layers.num_slots * layers.group.cp_size)
    for group in groups:
        for layer in group.rows.layers:
            everything = torch.arange(layer.block_size, device=device)
            layer.elements[layer.at(everything)] = 0
    return RowStore(tuple(groups), WrittenRows(num_slots, device, remembered))


def _skipping(store_rows: StoreRows, group: int) -> Callable[[torch.Tensor], None]:
    def write(slots: torch.Tensor) -> None:
        wanted = slots[slots >= 0]
        if wanted.shape[0]:
            store_rows(wanted, group)

    return write


def sliding_window_of(spec: Any, layer_names: Iterable[str]) -> int:
    """The window of the draft layers of a KV cache group with vLLM's spec `spec`; 0 where any sees everything."""
    by_layer = getattr(spec, "kv_cache_specs", None)
    specs = [by_layer[name] for name in layer_names] if by_layer else [spec]
    windows = [int(getattr(each, "sliding_window", None) or 0) for each in specs]
    return 0 if 0 in windows else max(windows, default=0)


def cache_of(layer: Any) -> torch.Tensor:
    """The cache tensor of an attention layer; older releases keep it in a list by virtual engine."""
    cache = layer.kv_cache
    tensor: torch.Tensor = cache[0] if isinstance(cache, list | tuple) else cache
    return tensor


def why_inactive(error: Exception) -> str:
    """In a sentence, why there is no context: a layout that is not understood, or anything else."""
    if isinstance(error, CellsNotFound | ValueError):
        return f"the draft cache's layout is not understood: {error}"
    return f"it could not be set up ({type(error).__name__}: {error})"
