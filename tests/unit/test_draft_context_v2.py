"""Model runner V2's draft step, with what it looks at in vLLM's speculator: who is judged, and on which rows."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dspark_cli.draft_context import runner_v2
from dspark_cli.draft_context.runner_v2 import ADMITTED, KEPT, Drafting
from dspark_cli.draft_context.runner_v2 import _prepare_dflash_inputs as prepare_dflash_inputs
from dspark_cli.draft_context.runner_v2 import _propose as propose
from tests.unit.test_draft_context import GROUPS, MAX_TOKENS, NUM_SLOTS, REQUESTS, Worker, slot_of

CPU = torch.device("cpu")
STALE_BEHIND = 64
"""Rows of the slot mappings behind the step's own: what an earlier step left there."""


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No memory is pinned, and the kernel that hides is passed over: what is to be hidden is looked at."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(runner_v2, "mask_draft_context", lambda *_: None)
    with torch.inference_mode():
        yield


class Speculator:
    """Two draft groups of `Worker`; tables and tokens by request slot, as V2 keeps them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.device = CPU
        self.draft_kv_cache_group_ids = list(range(len(GROUPS)))
        self.block_tables = SimpleNamespace(
            block_tables=[SimpleNamespace(gpu=self._by_slot(table)) for table in worker.tables]
        )
        self.requests = SimpleNamespace(all_token_ids=SimpleNamespace(gpu=self._by_slot(worker.token_ids)))
        self.input_buffers = SimpleNamespace(seq_lens=None)
        self.num_query_per_req = 8
        tables: Any = object()
        setattr(self, KEPT, Drafting(self.requests, context=worker.context, tables=tables, tried=True))
        self._context_slot_mappings = torch.full((len(GROUPS), 2 * MAX_TOKENS + STALE_BEHIND), -1)

    def admit(self, request: int, restored: int) -> None:
        self.requests.__dict__.setdefault(ADMITTED, {})[slot_of(request)] = restored

    def draft_step(self, stored: dict[int, Sequence[int]], left_by_the_last_step: Sequence[int] = ()) -> None:
        """stored: positions by request whose context rows this step stores. left_by_the_last_step: positions of
        request 0 in the slot mappings behind them."""
        rows = [(request, position) for request, positions in stored.items() for position in positions]
        behind = [(0, position) for position in left_by_the_last_step]
        for group in range(len(GROUPS)):
            for at, (request, position) in enumerate([*rows, *behind]):
                slot = self.worker.slots_of(group, request, torch.tensor([position]))
                self._context_slot_mappings[group, at] = int(slot)
        slots = np.array([slot_of(request) for request in range(REQUESTS)])
        batch = SimpleNamespace(num_tokens=len(rows), idx_mapping_np=slots, idx_mapping=None)
        propose(self._stock_propose, self, batch)

    def _stock_propose(self, _speculator: object, _batch: object) -> None:
        for _ in GROUPS:
            prepare_dflash_inputs(lambda: None)

    @staticmethod
    def _by_slot(rows: torch.Tensor) -> torch.Tensor:
        by_slot = torch.zeros(NUM_SLOTS, rows.shape[1], dtype=rows.dtype)
        by_slot[[slot_of(request) for request in range(REQUESTS)]] = rows
        return by_slot


def test_a_request_is_judged_on_what_the_drafter_wrote_before() -> None:
    speculator = Speculator(Worker())
    speculator.worker.draft(0, range(48))
    speculator.admit(0, 48)

    speculator.draft_step({0: range(48, 50)})

    assert speculator.worker.counted("valid_tokens") == 48


def test_rows_that_the_step_stores_count_as_written() -> None:
    speculator = Speculator(Worker())
    speculator.admit(0, 48)

    speculator.draft_step({0: range(60)})

    assert speculator.worker.counted("valid_tokens") == 48


def test_slots_that_an_earlier_step_left_in_the_mappings_do_not_count() -> None:
    speculator = Speculator(Worker())
    speculator.admit(0, 48)

    speculator.draft_step({1: range(50, 52)}, left_by_the_last_step=range(48))

    assert speculator.worker.counted("hidden_tokens") == 48


def test_a_request_is_judged_once() -> None:
    speculator = Speculator(Worker())
    speculator.admit(0, 48)

    for _ in range(2):
        speculator.draft_step({0: range(48, 50)})

    assert speculator.worker.counted("admissions") == 1
