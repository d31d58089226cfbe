"""Time what the patched runtime does about context rows, beside a device copy of the same rows, on the first GPU.

    PYTHONPATH=.:kernels python -m benchmarks.written_rows [--out FILE.json]

Two draft layers of two heads of 128, block 16, bf16. Recording is launched in every draft step, in the draft's CUDA
graph; judging when requests with restored tokens are admitted, outside it. An admission is all that the host does for
them in that step, judging included.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from dspark_kernels.cache_cells import find_cells
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.written_rows import (
    Admission,
    GroupRows,
    RowCells,
    WrittenRows,
    find_unwritten_rows,
    record_written_rows,
    row_cells,
)

from benchmarks.graph_timing import beside_copy, setting
from dspark_cli.draft_context.context import DraftContext, RowStore
from dspark_cli.draft_context.policy import Policy

BLOCKS, HEADS, BLOCK_TOKENS, HEAD_WIDTH, LAYERS = 4096, 2, 16, 128, 2
RECORDED = (8, 64, 512, 4096)
RESTORED = (1024, 16_384)
ADMITTED = (1, 4, 16)
MOST_REQUESTS = 64
LAUNCHES = 200


@dataclass(frozen=True)
class Timing:
    """Microseconds a launch: in a graph, of a copy of as many rows there, and of the host outside a graph."""

    what: str
    rows: int
    kernel_us: float
    copy_us: float
    ratio: float
    ratio_min: float
    ratio_max: float
    host_us: float


@dataclass(frozen=True)
class AdmissionTiming:
    """Microseconds of the host for one step's admissions."""

    requests: int
    restored_tokens: int
    host_us: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the timings as JSON")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = _row_cells()
    timings, admissions = list(_timings(rows)), list(_admissions(rows))
    print(*(f"{name} {value}" for name, value in setting().items()), sep=", ")
    print("what          rows  kernel us  copy us  ratio (min - max)       host us")
    for timing in timings:
        spread = f"{timing.ratio:.2f} ({timing.ratio_min:.2f} - {timing.ratio_max:.2f})"
        print(
            f"{timing.what:9} {timing.rows:8,} {timing.kernel_us:10.2f} {timing.copy_us:8.2f}  {spread:22}"
            f" {timing.host_us:8.1f}"
        )
    for admission in admissions:
        print(
            f"admission of {admission.requests} with {admission.restored_tokens:,} restored tokens each:"
            f" {admission.host_us:.1f} us of the host"
        )
    if arguments.out:
        document = {**setting(), "timings": [asdict(timing) for timing in timings]}
        document |= {"admissions": [asdict(admission) for admission in admissions]}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


def _row_cells() -> RowCells:
    layers = []
    for _ in range(LAYERS):
        cache = torch.zeros(BLOCKS, HEADS, BLOCK_TOKENS, HEAD_WIDTH, dtype=torch.bfloat16, device="cuda")
        layers.append(find_cells(cache, BLOCKS * BLOCK_TOKENS, _writer(cache)))
        cache.copy_(torch.randn_like(cache))
    return row_cells(layers)


def _writer(cache: torch.Tensor) -> Callable[[torch.Tensor], None]:
    def write(slots: torch.Tensor) -> None:
        kept = slots[slots >= 0]
        rows = torch.randn(len(kept), HEADS, HEAD_WIDTH, device="cuda").bfloat16()
        cache[kept // BLOCK_TOKENS, :, kept % BLOCK_TOKENS] = rows

    return write


def _timings(rows: RowCells) -> Iterator[Timing]:
    written = WrittenRows(rows.num_slots, torch.device("cuda"))
    table = (torch.randperm(BLOCKS - 1, device="cuda") + 1).int()[None]
    positions = torch.arange(max(*RECORDED, *RESTORED), device="cuda")
    slots = table[0, positions // BLOCK_TOKENS].long() * BLOCK_TOKENS + positions % BLOCK_TOKENS
    tokens = torch.randint(0, 1 << 15, (1, len(positions)), dtype=torch.int32, device="cuda")
    for count in RECORDED:
        yield _timed(
            "recording",
            count,
            lambda n=count: record_written_rows(written, rows, slots[:n], tokens[0, :n], positions[:n]),  # type: ignore[misc]
        )
    record_written_rows(written, rows, slots, tokens[0], positions)
    groups, past = [GroupRows(DraftGroup(BLOCK_TOKENS), rows)], torch.zeros(1, dtype=torch.int32, device="cuda")
    for count in RESTORED:
        first = torch.zeros(1, dtype=torch.int32, device="cuda")
        admission = Admission(first, torch.full_like(first, count), count, tokens, (table,))
        yield _timed("judging", count, lambda to=admission: find_unwritten_rows(written, groups, to, past))  # type: ignore[misc]
        assert int(past) == 0, "all of them were recorded"


def _admissions(rows: RowCells) -> Iterator[AdmissionTiming]:
    device = torch.device("cuda")
    store = RowStore((GroupRows(DraftGroup(BLOCK_TOKENS), rows),), WrittenRows(rows.num_slots, device))
    context = DraftContext(Policy.VALIDITY, store, MOST_REQUESTS, device)
    table = (torch.randperm(BLOCKS - 1, device=device) + 1).int()[None].expand(MOST_REQUESTS, -1).contiguous()
    tokens = torch.zeros(MOST_REQUESTS, RESTORED[0], dtype=torch.int32, device=device)
    coming = torch.arange(BLOCK_TOKENS, 8 * BLOCK_TOKENS, device=device)
    everybody = np.arange(MOST_REQUESTS)

    def admit(requests: int) -> None:
        for slot in range(requests):
            context.admit(slot, RESTORED[0])
        slots = context.unjudged()
        there = context.carry_over(slots)
        context.judge(slots, there, Admission(there[0], there[1], RESTORED[0], tokens, (table,), (coming,)))
        context.hides_in(everybody)

    for requests in ADMITTED:
        yield AdmissionTiming(requests, RESTORED[0], _host_us(partial(admit, requests)))


def _timed(what: str, count: int, launch: Callable[[], None]) -> Timing:
    source = torch.randn(count, LAYERS * HEADS * HEAD_WIDTH, device="cuda").bfloat16()
    destination = torch.empty_like(source)
    times = beside_copy(launch, lambda: destination.copy_(source))
    return Timing(what, count, **asdict(times), host_us=_host_us(launch))


def _host_us(launch: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    took = []
    for _ in range(LAUNCHES):
        began = time.perf_counter()
        launch()
        took.append(1e6 * (time.perf_counter() - began))
    torch.cuda.synchronize()
    return statistics.median(took)


if __name__ == "__main__":
    main()
