"""The sweep: run a kernel on every case, count wrong runs, and find the smallest case that still fails."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from dspark_cli.stress.case import Mapping, Shift, StressCase
from dspark_cli.stress.subjects import Prepare, Ready
from dspark_cli.stress.verdict import FailingCase, KernelVerdict

SHRINK_RUNS = 20


LARGE_TABLES = [(1, 1), (3, 130), (8, 1024), (64, 4096), (256, 8192), (8, 32768), (2, 65536)]
LARGE_LAUNCHES: list[dict[str, Any]] = [
    {"chunk": 1024, "warps": 4},
    {"chunk": 1024, "warps": 8, "early": True},
    {"chunk": 4096, "warps": 32, "early": True},
    {"chunk": 8192, "warps": 32},
    {"chunk": 2048, "warps": 8, "prefetch": True},
]
SMALL_TABLES = [(1, 1), (3, 130), (8, 300)]
SMALL_LAUNCHES: list[dict[str, Any]] = [
    {"chunk": 128, "warps": 4},
    {"chunk": 128, "warps": 4, "prefetch": True},
    {"chunk": 1024, "warps": 4, "early": True},
]


def sweep_cases(large: bool, graphs: bool) -> list[StressCase]:
    """The cases of a sweep: tables x shifts x launches, with mappings, gaps and graphs spread over them.

    The interpreter takes a second for what a GPU does in a microsecond: for it, and for memory checkers, small tables.
    """
    tables, launches = (LARGE_TABLES, LARGE_LAUNCHES) if large else (SMALL_TABLES, SMALL_LAUNCHES)
    cases = []
    for rows, blocks in tables:
        for number, shift in enumerate(Shift):
            for place, launch in enumerate(launches):
                spread = number + place
                cases.append(
                    StressCase(
                        rows,
                        blocks,
                        shift,
                        **launch,
                        mapping=list(Mapping)[spread % 3],
                        gap=(0, 5, 0, 64)[spread % 4],
                        graph=graphs and spread % 2 == 1,
                    )
                )
    return cases


def stress(
    kernel: str,
    prepare: Prepare,
    cases: Iterable[StressCase],
    *,
    iterations: int,
    seed: int,
    device: str,
    on_case: Callable[[], None] = lambda: None,
    shrink: bool = True,
) -> KernelVerdict:
    """Run `prepare`'s kernel `iterations` times on every case and compare each run with the reference.

    `on_case` is called after each case, for a progress bar. With `shrink`, the smallest failing case is made smaller
    for as long as it still fails.
    """
    ran, failing = 0, []
    for case in cases:
        wrong = wrong_runs(prepare(case, seed, device), case, iterations)
        ran += 1
        if wrong:
            failing.append((case, wrong))
        on_case()
    failing.sort(key=lambda found: found[0].size)
    smallest = failing[0][0] if failing else None
    if smallest is not None and shrink:
        smallest = _shrunk(smallest, lambda case: bool(wrong_runs(prepare(case, seed, device), case, SHRINK_RUNS)))
    return KernelVerdict(
        kernel,
        ran,
        ran * iterations,
        sum(wrong for _, wrong in failing),
        [FailingCase(str(case), wrong) for case, wrong in failing],
        None if smallest is None else str(smallest),
    )


def wrong_runs(ready: Ready, case: StressCase, iterations: int) -> int:
    """In how many of `iterations` runs an output differed; the device is asked once, at the end."""
    launch = _as_graph(ready) if case.graph else ready.launch
    wrong = torch.zeros((), dtype=torch.int64, device=ready.outputs[0].device)
    for _ in range(iterations):
        ready.reset()
        launch()
        differs = [(output != expected).any() for output, expected in zip(ready.outputs, ready.expected, strict=True)]
        wrong += torch.stack(differs).any()
    return int(wrong)


def _as_graph(ready: Ready) -> Callable[[], None]:
    """`launch` as the replay of a CUDA graph, captured after one run that compiles the kernel."""
    ready.reset()
    ready.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ready.launch()
    return graph.replay


def _shrunk(case: StressCase, fails: Callable[[StressCase], bool]) -> StressCase:
    while True:
        smaller = next((candidate for candidate in case.smaller() if fails(candidate)), None)
        if smaller is None:
            return case
        case = smaller
