"""Time a launch on the first GPU by CUDA-graph replay, beside a plain device copy, pair by pair."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import torch
import triton

from dspark_cli.sources.gpus import read_gpus

LAUNCHES_A_GRAPH = 20
PAIRS = 7


@dataclass(frozen=True)
class BesideCopy:
    """Microseconds a launch, and the ratio to the copy: median, least and greatest over the pairs."""

    kernel_us: float
    copy_us: float
    ratio: float
    ratio_min: float
    ratio_max: float


def beside_copy(launch: Callable[[], object], copy: Callable[[], object]) -> BesideCopy:
    """The two are timed in turn, and the ratio is taken pair by pair: a drift of the clock does not matter."""
    replay_kernel, replay_copy = _graph(launch), _graph(copy)
    pairs = [(_microseconds(replay_kernel), _microseconds(replay_copy)) for _ in range(PAIRS)]
    ratios = [kernel_us / copy_us for kernel_us, copy_us in pairs]
    return BesideCopy(
        statistics.median(kernel_us for kernel_us, _ in pairs),
        statistics.median(copy_us for _, copy_us in pairs),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def setting() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "driver": read_gpus()[0].driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def _graph(launch: Callable[[], object]) -> Callable[[], None]:
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES_A_GRAPH):
            launch()
    return graph.replay


def _microseconds(replay: Callable[[], None]) -> float:
    """A launch's time: the median over 25 ms of replays."""
    milliseconds: float = triton.testing.do_bench(replay, warmup=5, rep=25, return_mode="median")
    return milliseconds * 1000 / LAUNCHES_A_GRAPH
