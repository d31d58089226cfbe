"""The drafter's graphs under a schedule of depths, planned by vLLM's own manager with and without the fix.

Run as a program, this file plans them in a process of its own and prints what came out: the fix must not stay in the
process of other tests.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.own_process import answer_of
from tests.paths import DFLASH, TARGET

DEPTH, MAX_REQUESTS = 6, 64
WIDTH = 1 + DEPTH
SCHEDULE = [[1, 16, 6], [17, 32, 4], [33, 64, 0]]
CAPTURE_SIZES = [1, 2, 4, *range(8, 513, 8)]
"""vLLM's usual grid."""

Plans = dict[str, Any]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    """What each manager planned: "stock", "fixed" and "fixed twice" draft managers, and a "target" one with the fix."""
    folder = tmp_path_factory.mktemp("group")
    answer: Plans = answer_of("tests.unit.test_fix_one_width_draft_graphs", str(folder))
    return answer


def test_stock_vllm_plans_draft_graphs_of_widths_that_the_drafter_never_has(planned: Plans) -> None:
    assert planned["stock"]["widths"] == [1, 5, WIDTH]


def test_those_widths_hide_graphs_that_fit_so_some_batches_draft_without_one(planned: Plans) -> None:
    assert planned["stock"]["batches_without_graph"]


@pytest.mark.parametrize("manager", ["fixed", "fixed twice"])
def test_with_the_fix_every_batch_has_a_graph_of_the_drafters_width(planned: Plans, manager: str) -> None:
    assert planned[manager]["widths"] == [WIDTH]
    assert planned[manager]["batches_without_graph"] == []


def test_target_graphs_keep_one_width_a_depth(planned: Plans) -> None:
    assert planned["target"]["widths"] == [1, 5, WIDTH]


def test_the_configuration_keeps_its_schedule(planned: Plans) -> None:
    assert planned["schedule_after"] == SCHEDULE


def _print_plans(folder: Path) -> None:
    from dspark_cli.inside_vllm.engine_config import engine_config
    from dspark_cli.inside_vllm.stand_in_platform import stand_in

    stand_in("cpu", None)
    drafter = {
        "method": "dflash",
        "model": str(DFLASH),
        "num_speculative_tokens": DEPTH,
        "num_speculative_tokens_per_batch_size": SCHEDULE,
    }
    options = ["--max-num-seqs", str(MAX_REQUESTS), "--speculative-config", json.dumps(drafter)]
    config = engine_config([str(TARGET), *options])
    config.compilation_config.cudagraph_capture_sizes = CAPTURE_SIZES
    config.compilation_config.max_cudagraph_capture_size = CAPTURE_SIZES[-1]
    _one_process_group(config, folder)

    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager
    from vllm.v1.worker.gpu.spec_decode.dflash.cudagraph import DFlashCudaGraphManager

    from dspark_cli.patches.fixes.one_width_draft_graphs import apply

    plans: Plans = {"stock": _planned(DFlashCudaGraphManager, config)}
    for name in ("fixed", "fixed twice"):
        apply()
        plans[name] = _planned(DFlashCudaGraphManager, config)
    plans["target"] = _planned(CudaGraphManager, config)
    plans["schedule_after"] = config.speculative_config.num_speculative_tokens_per_batch_size
    sys.stdout.write(json.dumps(plans) + "\n")


def _one_process_group(config: Any, folder: Path) -> None:
    from vllm.config import set_current_vllm_config
    from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from vllm.platforms import current_platform

    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{folder}/group", 0, "gloo")
        initialize_model_parallel(1, 1)
    # A handle that nothing here opens: this torch has no graphs to make a pool for.
    type(current_platform)._global_graph_pool = (0, 0)


def _planned(kind: Any, config: Any) -> dict[str, Any]:
    import torch
    from vllm.config.compilation import CUDAGraphMode

    manager = kind(config, torch.device("cpu"), CUDAGraphMode.FULL_DECODE_ONLY, decode_query_len=WIDTH)
    assert manager.vllm_config is config
    # Dispatch answers only where capture is done; it looks at what was planned, not at the graphs.
    manager._graphs_captured = True
    fitting = [n for n in range(1, MAX_REQUESTS + 1) if n * WIDTH <= CAPTURE_SIZES[-1]]
    modes = {n: manager.dispatch(n, n * WIDTH, WIDTH, 0).cg_mode for n in fitting}
    return {
        "widths": sorted({plan.uniform_token_count for plan in manager._capture_descs[CUDAGraphMode.FULL]}),
        "batches_without_graph": [n for n, mode in modes.items() if mode == CUDAGraphMode.NONE],
    }


if __name__ == "__main__":
    _print_plans(Path(sys.argv[1]))
