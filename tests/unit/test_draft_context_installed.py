"""What a worker says of its patched runtime: plain values, whatever became of the runtime."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dspark_kernels.hidden_lengths import COUNTED

from dspark_cli.draft_context import installed
from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.installed import Installed, describe
from dspark_cli.draft_context.policy import Policy

WORKER = SimpleNamespace(rank=3)
NOTHING_COUNTED = dict.fromkeys(COUNTED, 0)


class Totals:
    """Stands for the context of a device that answers, or not."""

    def __init__(self, answer: dict[str, int] | Exception) -> None:
        self._answer = answer

    def totals(self) -> dict[str, int]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def context_with(answer: dict[str, int] | Exception) -> DraftContext:
    return cast(DraftContext, Totals(answer))


def told(monkeypatch: pytest.MonkeyPatch, here: Installed, worker: Any = WORKER) -> dict[str, Any]:
    """What `describe` says, which must survive JSON."""
    monkeypatch.setattr(installed, "HERE", here)
    said = describe(worker)
    assert json.loads(json.dumps(said)) == said
    return said


def test_a_worker_without_the_runtime_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, Installed()) == {
        "rank": 3,
        "policy": "off",
        "witness": "content",
        "active": False,
        "inactive_reason": "not asked for",
        "patches": [],
        "failed_patches": {},
        **NOTHING_COUNTED,
    }


def test_a_worker_with_a_context_tells_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = dict(zip(COUNTED, (2, 96, 60, 32, 4), strict=True))
    here = Installed(Policy.RESTORED, None, context_with(counts), ["draft_context_v2"], {"skipped_drafter": "failed"})

    said = told(monkeypatch, here)

    assert {name: said[name] for name in COUNTED} == counts
    assert (said["policy"], said["active"], said["inactive_reason"]) == ("restored", True, None)
    assert (said["patches"], said["failed_patches"]) == (["draft_context_v2"], {"skipped_drafter": "failed"})


def test_a_device_that_does_not_answer_is_a_reason_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = context_with(RuntimeError("CUDA error: device lost\nCompile with TORCH_USE_CUDA_DSA"))

    said = told(monkeypatch, Installed(Policy.VALIDITY, None, lost, ["draft_context_v2"]))

    assert (said["active"], said["inactive_reason"]) == (False, "RuntimeError: CUDA error: device lost")
    assert said["patches"] == ["draft_context_v2"]


def test_a_worker_without_a_rank_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, Installed(), worker=object())["rank"] == 0


def test_what_was_told_does_not_change_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Installed(Policy.VALIDITY, None, context_with(NOTHING_COUNTED))
    said = told(monkeypatch, here)

    here.applied.append("draft_context_v2")
    here.failed["skipped_drafter"] = "failed"

    assert (said["patches"], said["failed_patches"]) == ([], {})
