"""A step in which model runner V1 skips its drafter still writes the drafter's context, at positions that it has."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.written_rows import Admission

from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.policy import Policy
from dspark_cli.draft_context.row_store import DraftLayers, build_row_store
from dspark_cli.draft_context.runner_v1 import KEPT, RunnerContext
from dspark_cli.patches.fixes.skipped_drafter import PAD_SLOT, drafter_positions, store_context_rows

CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE, WIDTH = 12, 4, 8
ROTARY_ROWS = 20
TOKENS = 10


class Drafter:
    """One layer whose row is the sum of a token's state and its position's row of the rotary table, and its double."""

    def __init__(self, aux_states: int = 1) -> None:
        self._rope_cos_sin_cache = torch.linspace(0.5, 3, ROTARY_ROWS * WIDTH).view(ROTARY_ROWS, WIDTH)
        self.combine = torch.linspace(-1, 2, aux_states * WIDTH * WIDTH).view(aux_states * WIDTH, WIDTH)
        self.cache = torch.ones(BLOCKS, BLOCK_SIZE, 2, WIDTH)
        self.stored: list[tuple[torch.Tensor, torch.Tensor]] = []

    def combine_hidden_states(self, states: torch.Tensor) -> torch.Tensor:
        return states @ self.combine

    def precompute_and_store_context_kv(
        self, states: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> None:
        self.stored.append((positions, slots))
        rows = self.row(states, positions)
        real = slots != PAD_SLOT
        self.cache[slots[real] // BLOCK_SIZE, slots[real] % BLOCK_SIZE] = rows[real]

    def row(self, states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        keys = states + self._rope_cos_sin_cache[positions]
        return torch.stack([keys, 2 * keys], dim=1)


class Step:
    """TOKENS tokens of one request, from position `start` on, as the runner keeps them between forward pass and
    sampling: its buffers are longer than the step."""

    def __init__(self, start: int = 0, aux_states: int = 0) -> None:
        draw = torch.Generator().manual_seed(0)
        self.positions = torch.arange(start, start + TOKENS)
        self.slots = torch.randperm((BLOCKS - 1) * BLOCK_SIZE, generator=draw)[:TOKENS] + BLOCK_SIZE
        self.states = torch.randn(TOKENS + 3, WIDTH, generator=draw)
        self.aux_states = [torch.randn(TOKENS + 3, WIDTH, generator=draw) for _ in range(aux_states)]
        self.tokens = torch.randint(0, 1000, (TOKENS + 3,), generator=draw, dtype=torch.int32)
        self.drafter = SimpleNamespace(model=Drafter(max(aux_states, 1)))

    def store(self, positions: torch.Tensor | None = None) -> None:
        buffer = self.positions if positions is None else positions
        runner = SimpleNamespace(
            drafter=self.drafter,
            _get_positions=lambda count: buffer[..., :count],
            use_aux_hidden_state_outputs=bool(self.aux_states),
            input_ids=SimpleNamespace(gpu=self.tokens),
        )
        state = SimpleNamespace(
            scheduler_output=SimpleNamespace(total_num_scheduled_tokens=TOKENS),
            hidden_states=self.states,
            aux_hidden_states=self.aux_states or None,
        )
        mapping = torch.cat([self.slots, torch.tensor([1, 2])])
        store_context_rows(runner, state, SimpleNamespace(slot_mapping=mapping))

    def rows(self) -> torch.Tensor:
        cache: torch.Tensor = self.drafter.model.cache
        return cache[self.slots // BLOCK_SIZE, self.slots % BLOCK_SIZE]

    def expected(self, states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.drafter.model.row(self.drafter.model.combine_hidden_states(states), positions)
        return rows


@pytest.fixture(autouse=True)
def inference_mode() -> Iterator[None]:
    """As vLLM samples."""
    with torch.inference_mode():
        yield


def test_the_rows_of_all_tokens_are_stored_in_their_slots() -> None:
    step = Step(start=3)

    step.store()

    torch.testing.assert_close(step.rows(), step.expected(step.states[:TOKENS], step.positions))
    assert int((step.drafter.model.cache == 1).all(dim=(2, 3)).sum()) == BLOCKS * BLOCK_SIZE - TOKENS


def test_rows_are_made_of_the_auxiliary_states_side_by_side_where_the_target_gives_them() -> None:
    step = Step(aux_states=3)

    step.store()

    together = torch.cat([states[:TOKENS] for states in step.aux_states], dim=1)
    torch.testing.assert_close(step.rows(), step.expected(together, step.positions))


def test_positions_beyond_the_rotary_table_get_no_row() -> None:
    step = Step(start=ROTARY_ROWS - 4)

    step.store()

    ((positions, slots),) = step.drafter.model.stored
    assert slots.tolist() == [*step.slots[:4].tolist(), *[PAD_SLOT] * (TOKENS - 4)]
    assert positions.tolist() == [16, 17, 18, 19, *[0] * (TOKENS - 4)]
    torch.testing.assert_close(step.rows()[:4], step.expected(step.states[:4], step.positions[:4]))
    assert (step.rows()[4:] == 1).all()


def test_slots_that_are_padding_stay_so() -> None:
    step = Step()
    step.slots[2] = PAD_SLOT

    step.store()

    ((_, slots),) = step.drafter.model.stored
    assert slots.tolist() == step.slots.tolist()


def test_positions_in_three_sections_write_nothing() -> None:
    step = Step()

    step.store(positions=step.positions.expand(3, TOKENS))

    assert step.drafter.model.stored == []
    assert (step.drafter.model.cache == 1).all()


def test_a_drafters_positions_are_those_of_its_rotary_table_or_of_its_configuration() -> None:
    config = SimpleNamespace(hf_config=SimpleNamespace(max_position_embeddings=4096))
    table = SimpleNamespace(_rope_cos_sin_cache=torch.zeros(7, WIDTH))

    assert drafter_positions(SimpleNamespace(model=table, draft_model_config=config)) == 7
    assert drafter_positions(SimpleNamespace(model=SimpleNamespace(model=table), draft_model_config=config)) == 7
    assert drafter_positions(SimpleNamespace(model=SimpleNamespace(), draft_model_config=config)) == 4096


def test_the_draft_context_knows_the_rows_that_were_stored() -> None:
    step = Step(start=0)
    step.slots = torch.arange(BLOCK_SIZE, BLOCK_SIZE + TOKENS)
    context = draft_context_of(step)

    step.store()

    assert past_unwritten(context, step.tokens, TOKENS) == 0
    assert past_unwritten(context, step.tokens, TOKENS + 1) == TOKENS + 1


def test_the_draft_context_knows_nothing_of_tokens_without_a_row() -> None:
    step = Step(start=0)
    step.slots = torch.arange(BLOCK_SIZE, BLOCK_SIZE + TOKENS)
    step.drafter.model._rope_cos_sin_cache = step.drafter.model._rope_cos_sin_cache[:6]
    context = draft_context_of(step)

    step.store()

    assert past_unwritten(context, step.tokens, 6) == 0
    assert past_unwritten(context, step.tokens, 7) == 7


class Understood(RunnerContext):
    """A runner whose draft context is there already."""

    def __init__(self, context: DraftContext) -> None:
        super().__init__(SimpleNamespace(max_num_reqs=1))
        self._known = context

    def context_with(self, proposer: Any) -> DraftContext:
        return self._known


def draft_context_of(step: Step) -> DraftContext:
    """The draft context of `step`'s drafter, who knows of it."""
    model = step.drafter.model

    def store_rows(slots: torch.Tensor, _group: int) -> None:
        model.precompute_and_store_context_kv(torch.ones(len(slots), WIDTH), torch.arange(len(slots)), slots)

    layers = DraftLayers(DraftGroup(BLOCK_SIZE), [model.cache], BLOCKS * BLOCK_SIZE)
    context = DraftContext(Policy.VALIDITY, build_row_store([layers], store_rows, CPU), 1, CPU)
    setattr(step.drafter, KEPT, Understood(context))
    return context


def past_unwritten(context: DraftContext, tokens: torch.Tensor, restored: int) -> int:
    """What is hidden or zeroed of a request whose `restored` tokens lie in blocks 1, 2, ..."""
    before = context.totals()
    table = torch.arange(1, BLOCKS, dtype=torch.int32).view(1, -1)
    there = context.carry_over({0: restored})
    context.judge({0: restored}, there, Admission(there[0], there[1], restored, tokens[None], (table,)))
    after = context.totals()
    return sum(after[name] - before[name] for name in ("hidden_tokens", "zeroed_tokens"))
