"""Time the block-table kernels beside a plain device copy of the same bytes, on the first GPU, by CUDA-graph replay.

    PYTHONPATH=.:kernels python -m benchmarks.block_tables                  # the default launch shapes
    PYTHONPATH=.:kernels python -m benchmarks.block_tables --sweep          # every candidate shape
    PYTHONPATH=.:kernels python -m benchmarks.block_tables --out FILE.json

Kernel and copy are timed in turn, and the ratio is taken pair by pair, so that a drift of the clock does not matter.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from dspark_kernels.block_table_gather import candidate_gather_shapes, gather_block_tables
from dspark_kernels.block_table_shift import ShiftShape, candidate_shift_shapes, shift_block_tables
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup
from dspark_kernels.draft_masking import mask_draft_context

from benchmarks.graph_timing import beside_copy, setting

TABLES = [(8, 1024), (64, 4096), (256, 8192), (256, 32768)]
HIDDEN_BLOCKS = 97
BLOCK_TOKENS = 16
QUERY_TOKENS = 8


@dataclass(frozen=True)
class Timing:
    """Microseconds a launch, and the ratio to the copy: median, least and greatest over the pairs."""

    kernel: str
    rows: int
    blocks: int
    shape: str
    kernel_us: float
    copy_us: float
    ratio: float
    ratio_min: float
    ratio_max: float


def main() -> None:
    arguments = _parse()
    timings = []
    for rows, blocks in TABLES:
        table = torch.randint(1, 1 << 30, (rows, blocks), dtype=torch.int32, device="cuda")
        for kernel, candidates in (("shift", _shifts), ("masking", _maskings), ("gather", _gathers)):
            for place, (shape, launch) in enumerate(candidates(table)):
                if place == 0 or arguments.sweep:
                    timings.append(_timed(kernel, table, shape, launch))
    _show(timings)
    if arguments.out:
        document = {**setting(), "timings": [asdict(timing) for timing in timings]}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", action="store_true", help="time every candidate shape, not the default alone")
    parser.add_argument("--out", type=Path, help="also write the timings as JSON")
    return parser.parse_args()


Candidates = Iterator[tuple[object, Callable[[], None]]]


def _shifts(table: torch.Tensor) -> Candidates:
    rows, blocks = table.shape
    work = table.clone()
    shifts = torch.full((rows,), HIDDEN_BLOCKS, dtype=torch.int32, device="cuda")
    needed = blocks - shifts
    for shape in candidate_shift_shapes(blocks):
        yield shape, lambda shape=shape: shift_block_tables(work, shifts, needed, shape=shape)  # type: ignore[misc]


def _maskings(table: torch.Tensor) -> Candidates:
    """The lengths go to a buffer of their own: shortened in place, every further replay would have less to move."""
    rows, blocks = table.shape
    tables = DraftBlockTables([DraftGroup(BLOCK_TOKENS)], [table.clone()])
    seq_lens = torch.full((rows,), blocks * BLOCK_TOKENS, dtype=torch.int32, device="cuda")
    masked = torch.empty_like(seq_lens)
    slots = torch.randperm(rows, device="cuda").int()
    hidden = torch.full((rows,), HIDDEN_BLOCKS * BLOCK_TOKENS, dtype=torch.int32, device="cuda")

    def launch(shape: ShiftShape) -> Callable[[], None]:
        return lambda: mask_draft_context(
            tables, seq_lens, slots, hidden, QUERY_TOKENS, masked_seq_lens=masked, shape=shape
        )

    for shape in candidate_shift_shapes(blocks):
        yield shape, launch(shape)


def _gathers(table: torch.Tensor) -> Candidates:
    rows, blocks = table.shape
    output = torch.empty_like(table)
    slots = torch.randperm(rows, device="cuda").int()
    hidden = torch.full((rows,), HIDDEN_BLOCKS, dtype=torch.int32, device="cuda")
    needed = blocks - hidden
    for shape in candidate_gather_shapes(blocks):
        yield (
            shape,
            lambda shape=shape: gather_block_tables(table, output, slots, hidden, needed, shape=shape),  # type: ignore[misc]
        )


def _timed(kernel: str, table: torch.Tensor, shape: object, launch: Callable[[], None]) -> Timing:
    destination = torch.empty_like(table)
    times = beside_copy(launch, lambda: destination.copy_(table))
    return Timing(kernel, table.shape[0], table.shape[1], str(shape), **asdict(times))


def _show(timings: list[Timing]) -> None:
    print(*(f"{name} {value}" for name, value in setting().items()), sep=", ")
    print("kernel   rows x blocks    kernel us  copy us  ratio (min - max)   launch shape")
    best: dict[tuple[str, int, int], list[Timing]] = {}
    for timing in timings:
        best.setdefault((timing.kernel, timing.rows, timing.blocks), []).append(timing)
    for tried in best.values():
        fastest = sorted(tried[1:], key=lambda timing: timing.ratio)[:3]
        for mark, timing in [("", tried[0]), *(("  tried ", other) for other in fastest)]:
            size = f"{timing.rows} x {timing.blocks}"
            spread = f"{timing.ratio:.3f} ({timing.ratio_min:.3f} - {timing.ratio_max:.3f})"
            times = f"{timing.kernel_us:9.2f} {timing.copy_us:8.2f}"
            print(f"{mark or timing.kernel:8} {size:15} {times}  {spread:19} {timing.shape}")


if __name__ == "__main__":
    main()
