"""The depth that a schedule sets, in vLLM's own scheduler, where the worker hands back drafts of the full depth.

Run as a program, this file schedules one request in a process of its own and prints its drafts: the fix must not stay
in the process of other tests.
"""

import json
import sys
from typing import Any

import pytest

from tests.own_process import answer_of
from tests.paths import DFLASH, TARGET

DRAFTS = [11, 12, 13, 14, 15, 16]
FULL_DEPTH = len(DRAFTS)


@pytest.fixture(scope="module")
def kept() -> dict[str, list[int]]:
    """ "stock 0", "fixed 2", "fixed twice none", ... -> the drafts that the request has after the worker's answer."""
    answer: dict[str, list[int]] = answer_of("tests.unit.test_fix_explicit_depth")
    return answer


@pytest.mark.parametrize("depth", [0, 2])
def test_stock_scheduler_takes_the_full_depth_whatever_was_scheduled(kept: dict[str, list[int]], depth: int) -> None:
    assert kept[f"stock {depth}"] == DRAFTS


@pytest.mark.parametrize("depth", [0, 2, FULL_DEPTH])
@pytest.mark.parametrize("fix", ["fixed", "fixed twice"])
def test_with_the_fix_a_request_gets_the_scheduled_depth(kept: dict[str, list[int]], fix: str, depth: int) -> None:
    assert kept[f"{fix} {depth}"] == DRAFTS[:depth]


@pytest.mark.parametrize("fix", ["stock", "fixed", "fixed twice"])
def test_without_a_schedule_nothing_is_cut(kept: dict[str, list[int]], fix: str) -> None:
    assert kept[f"{fix} none"] == DRAFTS


def _print_kept() -> None:
    from dspark_cli.inside_vllm.stand_in_platform import stand_in

    stand_in("cpu", None)
    from dspark_cli.patches.fixes.explicit_depth import apply

    kept: dict[str, list[int]] = {}
    for fix in ("stock", "fixed", "fixed twice"):
        if fix != "stock":
            apply()
        for depth in (0, 2, FULL_DEPTH, None):
            kept[f"{fix} {'none' if depth is None else depth}"] = _drafts_after_one_step(depth)
    sys.stdout.write(json.dumps(kept) + "\n")


def _drafts_after_one_step(depth: int | None) -> list[int]:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request

    scheduler = _scheduler(depth)
    request = Request("r", [1, 2, 3], SamplingParams(max_tokens=100, ignore_eos=True), pooling_params=None)
    scheduler.add_request(request)
    step = scheduler.schedule()
    scheduler.update_from_output(step, ModelRunnerOutput(["r"], {"r": 0}, sampled_token_ids=[[4]]))
    scheduler.update_draft_token_ids(DraftTokenIds(["r"], [list(DRAFTS)]))
    return list(request.spec_token_ids)


def _scheduler(depth: int | None) -> Any:
    import torch
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from dspark_cli.inside_vllm.engine_config import engine_config

    drafter: dict[str, Any] = {"method": "dflash", "model": str(DFLASH), "num_speculative_tokens": FULL_DEPTH}
    if depth is not None:
        drafter["num_speculative_tokens_per_batch_size"] = [[1, 4, depth]]
    options = ["--max-num-seqs", "4", "--no-async-scheduling", "--speculative-config", json.dumps(drafter)]
    config = engine_config([str(TARGET), *options])
    config.cache_config.num_gpu_blocks = 64
    spec = FullAttentionSpec(
        block_size=config.cache_config.block_size, num_kv_heads=2, head_size=64, dtype=torch.float32
    )
    cache = KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return Scheduler(config, cache, StructuredOutputManager(config), block_size=config.cache_config.block_size)


if __name__ == "__main__":
    _print_kept()
