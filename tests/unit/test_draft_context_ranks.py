"""Ranks that draft together judge together: who is judged, and when, must not depend on what one of them knows."""

import logging
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.written_rows import Admission, WrittenRows

from dspark_cli.draft_context import install, ranks, runner_v1, runner_v2
from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.installed import Installed
from dspark_cli.draft_context.policy import Policy
from dspark_cli.draft_context.ranks import keep_where_all_ranks_have_one
from dspark_cli.draft_context.row_store import DraftLayers, build_row_store
from dspark_cli.draft_context.runner_v2 import Drafting

CPU = torch.device("cpu")
BLOCK = 4
BLOCKS = 16


class Speculator(SimpleNamespace):
    """One that can be referred to weakly."""


@pytest.fixture(autouse=True)
def inference_mode() -> Iterator[None]:
    with torch.inference_mode():
        yield


def fresh_context() -> DraftContext:
    """One layer, nothing written."""
    cache = torch.zeros(BLOCKS, BLOCK, 5, dtype=torch.bfloat16)

    def store_rows(slots: torch.Tensor, _group: int) -> None:
        cache[slots // BLOCK, slots % BLOCK] = torch.randn(len(slots), 5).to(torch.bfloat16)

    store = build_row_store([DraftLayers(DraftGroup(BLOCK), [cache], BLOCKS * BLOCK)], store_rows, CPU)
    return DraftContext(Policy.VALIDITY, store, 4, CPU)


def judge(context: DraftContext) -> dict[int, int]:
    slots = context.unjudged()
    there = context.carry_over(slots)
    admission = Admission(
        rows=torch.zeros_like(there[0]),
        restored_tokens=there[1],
        most_restored=max(slots.values(), default=0),
        token_ids=torch.zeros(1, 64, dtype=torch.int32),
        tables=(torch.arange(1, BLOCKS, dtype=torch.int32)[None],),
    )
    context.judge(slots, there, admission)
    return slots


@pytest.mark.parametrize("restored_before", [0, 8])
def test_a_rank_that_heard_from_its_device_judges_those_that_a_waiting_rank_does(restored_before: int) -> None:
    heard, waits = fresh_context(), fresh_context()
    for context in (heard, waits):
        context.store.written.words.fill_(-1)  # all rows are found
        context.admit(1, restored_before)
        judge(context)
    heard.hides_in(np.array([1]))

    for context in (heard, waits):
        context.admit(1, 0)
        context.admit(2, 12)

    assert list(judge(heard).items()) == list(judge(waits).items())


def test_a_slot_that_changed_hands_before_anyone_was_judged_is_the_last_requests() -> None:
    context = fresh_context()

    context.admit(1, 8)
    context.admit(1, 0)

    assert context.unjudged() == {}
    assert not context.hides_in(np.array([1]))


def test_the_filter_makes_room_for_the_rows_of_all_draft_groups() -> None:
    context = SimpleNamespace(store=SimpleNamespace(written=WrittenRows(100, CPU)), mirror=SimpleNamespace(idle=True))
    mappings = torch.zeros(2, 1)
    speculator = Speculator(input_buffers=SimpleNamespace(), _context_slot_mappings=mappings)
    drafting = Drafting(weakref.ref(speculator), None, context=cast(Any, context), tried=True)
    setattr(speculator.input_buffers, runner_v2.KEPT, drafting)
    batch = SimpleNamespace(num_tokens=40)
    prepare = runner_v2._preparing(lambda *_: None)

    context.store.written.taken += 300
    for _ in range(3):
        for mapping in mappings:
            prepare(speculator.input_buffers, None, None, mapping, *[None] * 5, batch)

    assert int(context.store.written.current) == 1


def test_a_layout_that_is_not_understood_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ranks, "_other_ranks", lambda: None)
    monkeypatch.setattr(ranks, "HERE", Installed(Policy.VALIDITY, "the draft cache's layout is not understood: odd"))
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)

    assert keep_where_all_ranks_have_one(None) is None

    assert caplog.messages == ["draft context: not at work: the draft cache's layout is not understood: odd"]


def test_a_trial_allocation_gets_no_context_and_the_final_one_may() -> None:
    speculator = Speculator(draft_kv_cache_group_ids=[0], input_buffers=SimpleNamespace())
    runner = SimpleNamespace(speculator=speculator, req_states=SimpleNamespace(all_token_ids=None))
    tried = []

    for how in ({"is_profiling": True}, {}):
        runner_v2._initialize_kv_cache(lambda *_, **__: None, runner, "config", **how)
        tried.append(getattr(speculator, runner_v2.KEPT).tried)

    assert tried == [True, False]


def test_what_is_kept_for_a_speculator_does_not_keep_it() -> None:
    runner = SimpleNamespace(
        speculator=Speculator(draft_kv_cache_group_ids=[0], input_buffers=SimpleNamespace()),
        req_states=SimpleNamespace(all_token_ids=None),
    )
    buffers = runner.speculator.input_buffers
    runner_v2._initialize_kv_cache(lambda *_, **__: None, runner, "config")

    del runner.speculator

    assert getattr(buffers, runner_v2.KEPT).of() is None
    assert getattr(runner.req_states, runner_v2.KEPT) is getattr(buffers, runner_v2.KEPT)


@pytest.mark.parametrize(
    ("prefill", "decode", "uses_v2", "refused"),
    [(1, 1, False, False), (2, 1, True, True), (2, 1, False, True), (1, 2, False, True), (1, 2, True, False)],
)
def test_context_parallelism_that_deals_out_rows_or_slots_is_refused(
    prefill: int, decode: int, uses_v2: bool, refused: bool
) -> None:
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(method="dflash"),
        parallel_config=SimpleNamespace(prefill_context_parallel_size=prefill, decode_context_parallel_size=decode),
        use_v2_model_runner=uses_v2,
    )

    assert (install._refusal(config) is not None) == refused


def test_a_pipeline_stage_without_a_drafter_runs_as_before() -> None:
    assert runner_v1._update_states(lambda *_: "done", SimpleNamespace(), "scheduled") == "done"


@pytest.mark.parametrize(("length", "hidden"), [(40, 12), (15, 12), (14, 8), (7, 4), (6, 0), (3, 0)])
def test_v1_hides_no_block_of_the_query_of_a_request_that_a_failed_restore_took_back(length: int, hidden: int) -> None:
    context, query = fresh_context(), 3
    kept = runner_v1.RunnerContext(SimpleNamespace(max_num_reqs=3, input_batch=SimpleNamespace(req_ids=["a", "b"])))
    slot = kept.slots.take("b")
    context.admit(slot, 12)
    context.hidden_tokens[slot] = 12
    context.unjudged()
    metadata = SimpleNamespace(
        num_reqs=3,  # the last is padding
        max_query_len=query,
        seq_lens=torch.tensor([40, length, 0], dtype=torch.int32),
        block_table_tensor=torch.arange(30, dtype=torch.int32).view(3, 10),
    )

    runner_v1._hide(kept, context, SimpleNamespace(device=CPU, block_size=BLOCK), metadata)

    assert metadata.seq_lens.tolist() == [40, length - hidden, 0]
    assert metadata.block_table_tensor[:, 0].tolist() == [0, 10 + hidden // BLOCK, 20]
