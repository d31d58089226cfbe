"""vLLM's reduce-scatter with its own NCCL communicator off, on two ranks, with and without the fix.

Run as a program, this file makes the two ranks (gloo, on the CPU) and prints what each of them got. Memory that nobody
writes is NaN there, as torch fills it when asked for determinism.
"""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.own_process import answer_of

RANKS = 2
ROWS, HEADS = 3, 4

Got = dict[str, list[Any]]


@pytest.fixture(scope="module")
def got(tmp_path_factory: pytest.TempPathFactory) -> Got:
    """By what ran, what each rank got."""
    folder = tmp_path_factory.mktemp("ranks")
    answer: Got = answer_of("tests.unit.test_fix_sums_without_pynccl", str(folder))
    return answer


def test_stock_vllm_returns_memory_that_nobody_wrote(got: Got) -> None:
    assert all(math.isnan(value) for part in got["stock, off"] for row in part for value in row)


@pytest.mark.parametrize("ran", ["fixed, off", "fixed twice, off", "fixed, none"])
def test_with_the_fix_every_rank_has_the_sum_of_its_part(got: Got, ran: str) -> None:
    summed = _heads(0) + _heads(1)

    for rank, part in enumerate(got[ran]):
        wanted = summed[:, rank * HEADS // RANKS : (rank + 1) * HEADS // RANKS]
        torch.testing.assert_close(torch.tensor(part), wanted, rtol=0, atol=0)


def test_where_it_is_on_vllm_sums_as_before(got: Got) -> None:
    for rank, part in enumerate(got["fixed, on"]):
        torch.testing.assert_close(torch.tensor(part), torch.full((ROWS, HEADS // RANKS), 100.0 + rank))


def _heads(rank: int) -> torch.Tensor:
    return torch.arange(float(ROWS * HEADS)).view(ROWS, HEADS) * (rank + 1) + 0.5


def _on_rank(rank: int, folder: str) -> None:
    import torch.distributed as dist
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator

    from dspark_cli.patches.fixes.sums_without_pynccl import apply

    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=RANKS)
    torch.use_deterministic_algorithms(mode=True)  # empty memory is NaN
    off = PyNcclCommunicator.__new__(PyNcclCommunicator)
    off.disabled = True
    on = SimpleNamespace(disabled=False, reduce_scatter=lambda output, _: output.fill_(100.0 + rank))
    communicator = CudaCommunicator.__new__(CudaCommunicator)
    communicator.world_size, communicator.device_group = RANKS, dist.group.WORLD

    def summed(pynccl: Any) -> Any:
        communicator.pynccl_comm = pynccl
        return communicator.reduce_scatter(_heads(rank), dim=1).tolist()

    parts = {"stock, off": summed(off)}
    for name in ("fixed", "fixed twice"):
        apply()
        parts[f"{name}, off"] = summed(off)
    parts["fixed, none"], parts["fixed, on"] = summed(None), summed(on)
    Path(folder, str(rank)).write_text(json.dumps(parts))


def _print_parts(folder: str) -> None:
    from torch.multiprocessing.spawn import spawn

    spawn(_on_rank, (folder,), nprocs=RANKS)  # type: ignore[no-untyped-call]
    ranks = [json.loads(Path(folder, str(rank)).read_text()) for rank in range(RANKS)]
    sys.stdout.write(json.dumps({name: [parts[name] for parts in ranks] for name in ranks[0]}) + "\n")


if __name__ == "__main__":
    _print_parts(sys.argv[1])
