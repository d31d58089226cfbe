"""Model runner V2's draft step, with what it looks at in vLLM's speculator: who is judged, and on which rows."""

import weakref
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dspark_cli.draft_context import runner_v2
from dspark_cli.draft_context.runner_v2 import KEPT, Drafting, _add_request, _dummy_run, _preparing
from tests.unit.test_draft_context import GROUPS, MAX_TOKENS, NUM_SLOTS, REQUESTS, Worker, slot_of

CPU = torch.device("cpu")
STALE_BEHIND = 64
"""Rows of the slot mappings behind the step's own: what an earlier step left there."""


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernel that hides is passed over: what is to be hidden is looked at."""
    monkeypatch.setattr(runner_v2, "mask_draft_context", lambda *_: MASKED.append(1))
    MASKED.clear()
    with torch.inference_mode():
        yield


MASKED: list[int] = []
"""An entry for each time that something would be hidden."""


class Speculator:
    """Two draft groups of `Worker`; tables and tokens by request slot, as V2 keeps them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.device = CPU
        self.draft_kv_cache_group_ids = list(range(len(GROUPS)))
        self.block_tables = SimpleNamespace(
            block_tables=[SimpleNamespace(gpu=self._by_slot(table)) for table in worker.tables]
        )
        all_token_ids = SimpleNamespace(gpu=self._by_slot(worker.token_ids))
        self.requests = SimpleNamespace(req_id_to_index={str(slot): slot for slot in range(NUM_SLOTS)})
        self.input_buffers = SimpleNamespace(seq_lens=None)
        self.num_query_per_req = 8
        tables: Any = object()
        kept = Drafting(weakref.ref(self), all_token_ids, worker.context, tables, tried=True)
        for keeps in (self, self.input_buffers, self.requests):
            setattr(keeps, KEPT, kept)
        self._context_slot_mappings = torch.full((len(GROUPS), 2 * MAX_TOKENS + STALE_BEHIND), -1)

    def admit(self, request: int, restored: int) -> None:
        _add_request(lambda *_, **__: None, self.requests, req_id=str(slot_of(request)), num_computed_tokens=restored)

    def draft_step(self, stored: dict[int, Sequence[int]], left_by_the_last_step: Sequence[int] = ()) -> None:
        """stored: positions by request whose context rows this step stores. left_by_the_last_step: positions of
        request 0 in the slot mappings behind them."""
        rows = [(request, position) for request, positions in stored.items() for position in positions]
        behind = [(0, position) for position in left_by_the_last_step]
        for group in range(len(GROUPS)):
            for at, (request, position) in enumerate([*rows, *behind]):
                slot = self.worker.slots_of(group, request, torch.tensor([position]))
                self._context_slot_mappings[group, at] = int(slot)
        self.prepare(len(rows))

    def prepare(self, num_tokens: int) -> None:
        slots = np.array([slot_of(request) for request in range(REQUESTS)])
        batch = SimpleNamespace(num_tokens=num_tokens, idx_mapping_np=slots, idx_mapping=None)
        prepare = _preparing(lambda *_: None)
        for mapping in self._context_slot_mappings:
            prepare(self.input_buffers, None, None, mapping, None, None, None, None, None, batch)

    def dummy_run(self) -> None:
        _dummy_run(lambda _: self.prepare(8), SimpleNamespace(speculator=self))

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


def test_a_request_that_comes_while_steps_are_passed_over_is_judged_in_the_very_next_one() -> None:
    speculator = Speculator(Worker())
    speculator.draft_step({0: range(2)})
    passes_over = getattr(speculator, KEPT).rows_left

    speculator.admit(1, 48)
    speculator.draft_step({1: range(48, 49)})

    assert passes_over > 1
    assert speculator.worker.counted("admissions") == 1


def masked_in(speculator: Speculator, steps: int) -> list[int]:
    """How often each of `steps` decode steps hides something."""
    counts = []
    for step in range(steps):
        MASKED.clear()
        speculator.draft_step({0: range(48 + step, 49 + step)})
        counts.append(len(MASKED))
    return counts


def test_stale_context_is_hidden_in_every_step_of_its_request_and_not_of_the_next_one() -> None:
    speculator = Speculator(Worker())
    speculator.admit(0, 48)

    of_one = masked_in(speculator, 3)
    speculator.admit(0, 0)
    of_the_next = masked_in(speculator, 2)

    assert of_one == [1, 1, 1]
    assert of_the_next[-1] == 0


def test_where_context_is_good_later_steps_hide_nothing_and_do_not_look() -> None:
    speculator = Speculator(Worker())
    speculator.worker.draft(0, range(48))
    speculator.admit(0, 48)

    assert masked_in(speculator, 3)[1:] == [0, 0]
    assert speculator.worker.context.mirror.idle


def test_a_dummy_run_judges_nobody() -> None:
    speculator = Speculator(Worker())
    speculator.admit(0, 48)

    speculator.dummy_run()
    of_the_dummy_run = speculator.worker.counted("admissions")
    speculator.draft_step({0: range(48, 50)})

    assert of_the_dummy_run == 0
    assert speculator.worker.counted("admissions") == 1


def test_a_speculator_that_nothing_is_kept_for_drafts_as_stock() -> None:
    speculator = Speculator(Worker())
    speculator.admit(0, 48)
    delattr(speculator.input_buffers, KEPT)

    speculator.draft_step({0: range(48, 50)})

    assert speculator.worker.counted("admissions") == 0
