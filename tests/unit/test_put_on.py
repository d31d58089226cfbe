"""Fixes put on inside vLLM: judged anew in each process, once, and all of a fix or nothing of it.

Run as a program, this file makes schedulers' and workers' processes of the installed vLLM out of its own and prints
what became of them: patches must not stay in the process of other tests.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dspark_cli.draft_context.wrapping import MARK, all_or_nothing, wrap
from dspark_cli.patches.put_on import VARIABLE, asked_patches, require_all_ranks_alike
from dspark_cli.patches.registry import PATCHES
from tests.live_server import offline_environment
from tests.paths import DFLASH, TARGET

REPOSITORY = Path(__file__).parents[2]
LONGEST_S = 240

Processes = dict[str, Any]


class Stock:
    """Stands for a class of vLLM's."""

    def one(self) -> int:
        return 1

    def two(self) -> int:
        return 2


class Derived(Stock):
    pass


def add_ten(stock: Any, owner: Any) -> int:
    return int(stock(owner)) + 10


def add_hundred(stock: Any, owner: Any) -> int:
    return int(stock(owner)) + 100


@pytest.fixture
def stock_class() -> type[Stock]:
    return type("Fresh", (), dict(vars(Stock)))


def test_wrapping_twice_is_wrapping_once(stock_class: type[Stock]) -> None:
    wrap(stock_class, "one", add_ten)
    wrap(stock_class, "one", add_ten)

    assert stock_class().one() == 11


def test_two_wrappers_of_one_function_are_both_there_and_each_once(stock_class: type[Stock]) -> None:
    for around in (add_ten, add_hundred, add_ten, add_hundred):
        wrap(stock_class, "one", around)

    assert stock_class().one() == 111


def test_what_fails_halfway_leaves_nothing_behind(stock_class: type[Stock]) -> None:
    before = dict(vars(stock_class))

    def install() -> None:
        with all_or_nothing():
            wrap(stock_class, "one", add_ten)
            wrap(stock_class, "one", add_hundred)
            wrap(Derived, "two", add_ten)
            wrap(stock_class, "no_such_function", add_ten)

    with pytest.raises(AttributeError):
        install()

    assert dict(vars(stock_class)) == before
    assert "two" not in vars(Derived)
    assert not hasattr(Derived.two, MARK)


def test_what_succeeds_stays(stock_class: type[Stock]) -> None:
    with all_or_nothing():
        wrap(stock_class, "two", add_ten)

    assert stock_class().two() == 12


@pytest.mark.parametrize(
    ("asked", "without", "names"),
    [
        ("", "", []),
        ("skipped_drafter", "", ["skipped_drafter"]),
        ("skipped_drafter,explicit_depth_zero", "explicit_depth_zero", ["skipped_drafter"]),
        ("of_another_version,skipped_drafter,", "", ["skipped_drafter"]),
        ("draft_context_v2,trailing_block_drop", "", []),
        ("skipped_drafter,explicit_depth_zero", "all", []),
    ],
)
def test_the_environment_says_which(
    monkeypatch: pytest.MonkeyPatch, asked: str, without: str, names: list[str]
) -> None:
    monkeypatch.setenv(VARIABLE, asked)
    monkeypatch.setenv("VLLM_DSPARK_WITHOUT", without)

    assert [patch.name for patch in asked_patches()] == names


ONE_HOST = {"nnodes": 1, "world_size": 2, "distributed_executor_backend": "mp"}


@pytest.mark.parametrize(
    ("parallel", "stops"),
    [
        (ONE_HOST, False),
        ({**ONE_HOST, "nnodes": 2}, True),
        ({**ONE_HOST, "distributed_executor_backend": "ray"}, True),
        ({**ONE_HOST, "distributed_executor_backend": "ray", "world_size": 1}, False),
    ],
)
def test_a_rank_stops_only_where_ranks_on_other_hosts_may_have_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, parallel: dict[str, Any], stops: bool
) -> None:
    installed = pytest.importorskip("dspark_cli.draft_context.installed", reason="needs torch")
    require_all_ranks_alike(SimpleNamespace(**parallel))
    monkeypatch.setitem(installed.HERE.failed, "skipped_drafter", "unsupported: unknown source")

    if not stops:
        require_all_ranks_alike(SimpleNamespace(**parallel))
        return
    with pytest.raises(RuntimeError, match="skipped_drafter"):
        require_all_ranks_alike(SimpleNamespace(**parallel))


@pytest.fixture(scope="module")
def processes() -> Processes:
    """What `_print_processes` found, by the story's step."""
    asked = {VARIABLE: "skipped_drafter,explicit_depth_zero", "VLLM_DSPARK_DRAFT_CONTEXT": "validity"}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.test_put_on"],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        cwd=REPOSITORY,
        env={**offline_environment(), **asked},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer: Processes = json.loads(ran.stdout.splitlines()[-1])
    return {**answer, "log": ran.stdout + ran.stderr}


def test_loading_the_plugin_changes_no_model_runner(processes: Processes) -> None:
    assert processes["plugin loaded"] == {"wrapped": {}, "applied": [], "failed": {}}


def test_a_source_that_nobody_read_gets_nothing_and_says_so(processes: Processes) -> None:
    told = processes["unknown source"]

    assert told["wrapped"] == {}
    assert told["applied"] == []
    assert set(told["failed"]) == {"skipped_drafter", "draft_context_v1"}
    assert all("unsupported: unknown source" in reason for reason in told["failed"].values())
    assert "unknown source" in told["inactive"]


def test_a_fix_that_fails_is_told_and_leaves_nothing(processes: Processes) -> None:
    told = processes["failing"]

    assert told["wrapped"] == {}
    assert told["failed"]["skipped_drafter"] == "RuntimeError: no such luck"
    assert "patch skipped_drafter: not applied: RuntimeError: no such luck" in processes["log"]


def test_a_worker_of_the_installed_release_gets_what_fits(processes: Processes) -> None:
    told = processes["fits"]

    assert sorted(told["applied"]) == ["draft_context_v1", "skipped_drafter"]
    assert told["failed"] == {}
    assert "draft context: validity, on runner V1" in processes["log"]
    assert set(told["wrapped"]) == {"_update_states", "sample_tokens", "_input_fits_in_drafter"}


def test_a_second_worker_in_the_process_changes_nothing(processes: Processes) -> None:
    assert processes["twice"] == processes["fits"]


def test_what_vllm_has_itself_is_neither_put_on_nor_a_failure(processes: Processes) -> None:
    assert processes["scheduler"]["failed"] == {}
    assert "explicit_depth_zero" not in processes["scheduler"]["applied"]


def _print_processes() -> None:
    from dspark_cli.inside_vllm.engine_config import engine_config
    from dspark_cli.inside_vllm.stand_in_platform import stand_in

    stand_in("cpu", None)
    drafter = {"method": "dflash", "model": str(DFLASH), "num_speculative_tokens": 7}
    config = engine_config([str(TARGET), "--speculative-config", json.dumps(drafter)])
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"

    from vllm.v1.worker.worker_base import WorkerBase

    from dspark_cli.draft_context.plugin import keep_draft_context
    from dspark_cli.draft_context.wrapping import wrap
    from dspark_cli.patches import put_on, registry

    def make_worker() -> None:
        put_on.put_on_patches()
        keep_draft_context()
        WorkerBase(config, 0, 0, "")

    steps: Processes = {}
    put_on.put_on_patches()
    keep_draft_context()
    steps["plugin loaded"] = _state()

    registry.PATCHES = tuple(replace(patch, readings=()) for patch in PATCHES)
    make_worker()
    steps["unknown source"] = _state()

    def fail() -> None:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        wrap(GPUModelRunner, "sample_tokens", add_ten)
        raise RuntimeError("no such luck\nand a second line")

    registry.PATCHES = PATCHES
    own_entry, put_on._entry_of = put_on._entry_of, lambda patch: fail
    put_on.put_on(put_on.asked_patches())
    put_on._entry_of = own_entry
    steps["failing"] = _state()

    for step in ("fits", "twice"):
        make_worker()
        steps[step] = _state()
    put_on._make_scheduler(lambda scheduler: None, None)
    steps["scheduler"] = _state()
    sys.stdout.write("\n" + json.dumps(steps) + "\n")


def _state() -> Processes:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from dspark_cli.draft_context.installed import HERE

    names = ("_update_states", "sample_tokens", "_input_fits_in_drafter")
    marks = {name: list(getattr(getattr(GPUModelRunner, name), MARK, ())) for name in names}
    wrapped = {name: by for name, by in marks.items() if by}
    state = {"wrapped": wrapped, "applied": list(HERE.applied), "failed": dict(HERE.failed)}
    return {**state, **({"inactive": HERE.inactive} if HERE.failed else {})}


if __name__ == "__main__":
    _print_processes()
