"""A general plugin of vLLM: in each of its processes, put on the fixes that VLLM_DSPARK_PATCHES names.

They are put on when that for which they are is made: a scheduler in the engine core, a worker elsewhere. Each process
judges its own vLLM before; what does not fit there, or fails, is told in one line of the log and in the status.
"""

import importlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dspark_cli.patches.patch import Judgement, Patch, Place, Status

VARIABLE = "VLLM_DSPARK_PATCHES"
"""Names with commas. vLLM hands variables that begin with VLLM_ to its workers, under Ray too."""

logger = logging.getLogger("vllm.dspark_tool")


def put_on_patches() -> None:
    """The plugin. May be called again. Nothing of vLLM is touched, or even imported, that no asked patch is for."""
    asked = asked_patches()
    try:
        if any(patch.place is Place.ENGINE_CORE for patch in asked):
            _hook("vllm.v1.core.sched.scheduler", "Scheduler", _make_scheduler)
        if any(patch.place in (Place.RUNNER_V1, Place.RUNNER_V2) for patch in asked):
            _hook("vllm.v1.worker.worker_base", "WorkerBase", _make_worker)
    except Exception as error:
        logger.error("no patch is put on in this process: %s", one_line(error))


def asked_patches() -> list[Patch]:
    """Those of the registry that the environment names and does not leave out; names that it does not know are passed
    over, for another version of this package may have written them."""
    from dspark_cli.draft_context.policy import is_left_out
    from dspark_cli.patches.registry import PATCHES

    asked = set(os.environ.get(VARIABLE, "").split(","))
    known = [patch for patch in PATCHES if patch.name in asked and patch.place is not None]
    return [patch for patch in known if not is_left_out(patch.name)]


def put_on(patches: Iterable[Patch]) -> None:
    """Put on those of `patches` that apply to the vLLM of this process; how each came out is in `HERE`."""
    from dspark_cli.draft_context.installed import HERE
    from dspark_cli.draft_context.wrapping import all_or_nothing

    waiting = [patch for patch in patches if patch.name not in HERE.applied]
    for patch, judgement in zip(waiting, judged_here(waiting), strict=True):
        if judgement.status in (Status.NATIVE, Status.NOT_NEEDED):
            logger.info("patch %s: %s", patch.name, judgement.status)
            continue
        reason = misfit(judgement)
        if reason is None:
            try:
                with all_or_nothing():
                    _entry_of(patch)()
            except Exception as error:
                reason = one_line(error)
        if reason is None:
            HERE.applied.append(patch.name)
            HERE.failed.pop(patch.name, None)
            logger.info("patch %s: applied", patch.name)
        else:
            HERE.failed[patch.name] = reason
            logger.error("patch %s: not applied: %s", patch.name, reason)


def misfit(judgement: Judgement) -> str | None:
    """Why a patch must not be put on there; None where it applies."""
    return None if judgement.status is Status.APPLIES else f"{judgement.status}: {judgement.evidence}"


def judged_here(patches: list[Patch]) -> list[Judgement]:
    """How `patches` stand on the vLLM that this process runs."""
    import vllm

    from dspark_cli.patches.found_vllm import FoundVllm
    from dspark_cli.patches.judge import judge
    from dspark_cli.patches.matrix import read_matrix
    from dspark_cli.patches.source_tree import SourceTree

    package = Path(str(vllm.__file__)).parent
    found = FoundVllm(str(package), str(vllm.__version__), SourceTree(package))
    return judge(found, patches, read_matrix().known_digests()).judgements


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _hook(module: str, name: str, around: Any) -> None:
    from dspark_cli.draft_context.wrapping import wrap

    wrap(getattr(importlib.import_module(module), name), "__init__", around)


def _make_scheduler(stock: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    put_on(patch for patch in asked_patches() if patch.place is Place.ENGINE_CORE)
    stock(scheduler, *args, **kwargs)


def _make_worker(stock: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
    stock(worker, *args, **kwargs)
    runner = Place.RUNNER_V2 if getattr(worker.vllm_config, "use_v2_model_runner", False) else Place.RUNNER_V1
    put_on(patch for patch in asked_patches() if patch.place is runner)
    require_all_ranks_alike(worker.vllm_config.parallel_config)


def require_all_ranks_alike(parallel: Any) -> None:
    """Ranks on one host run the same sources, so a patch fits on all of them or on none. Of other hosts nobody knows.

    Raises:
        RuntimeError: a patch was not put on here, and ranks on other hosts may have it: together they would hang.
    """
    from dspark_cli.draft_context.installed import HERE

    elsewhere = parallel.nnodes > 1 or (parallel.world_size > 1 and parallel.distributed_executor_backend == "ray")
    if HERE.failed and elsewhere:
        told = "; ".join(f"{name} ({reason})" for name, reason in HERE.failed.items())
        raise RuntimeError(f"dspark-tool's patches do not fit on this host: {told}. Start without: --without NAME")


def _entry_of(patch: Patch) -> Any:
    module, _, function = str(patch.entry).partition(":")
    return getattr(importlib.import_module(module), function)
