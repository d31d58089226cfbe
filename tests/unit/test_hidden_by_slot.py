"""Whoever comes and leaves, and whenever answers come over: a step hides of each live request what was judged of it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.hidden_lengths import settle_hidden_lengths_reference
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.policy import Policy

BLOCK, SLOTS, RANKS = 4, 4, 2
SLOT, TOKENS = st.integers(0, SLOTS - 1), st.sampled_from((0, 3, 8, 14))


class Rank:
    """A context that is told what is unwritten. What the device answers comes over when `answer` lets it."""

    def __init__(self) -> None:
        store = SimpleNamespace(
            groups=[SimpleNamespace(group=DraftGroup(BLOCK))],
            written=SimpleNamespace(expect=lambda _: None),
        )
        self.context = DraftContext(Policy.VALIDITY, store, SLOTS, torch.device("cpu"))  # type: ignore[arg-type]
        self.context._kernels = SimpleNamespace(  # type: ignore[assignment]
            find_unwritten=self._find, zero_unwritten=lambda *_: None, settle=self._settle
        )
        self._answers = torch.full((SLOTS,), -1, dtype=torch.int32)

    def step(
        self, came: list[tuple[int, int]], unwritten: dict[int, int], batch: list[int]
    ) -> tuple[list[int], list[int]]:
        """As the runners do it. Who was judged, and what is hidden in `batch`."""
        for slot, restored in came:
            self.context.admit(slot, restored)
        judged = self.context.unjudged()
        if judged:
            self._past = [unwritten[slot] for slot in judged]
            self.context.judge(judged, self.context.carry_over(judged), None)  # type: ignore[arg-type]
        hides = self.context.hides_in(np.array(batch, dtype=np.int64))
        return list(judged), self.context.hidden_tokens[batch].tolist() if hides else [0] * len(batch)

    def answer(self, slots: set[int]) -> None:
        for slot in slots:
            self.context.mirror.answers[slot] = self._answers[slot]

    def _find(self, _written: Any, _groups: Any, _admission: Any, past: torch.Tensor) -> None:
        past.copy_(torch.tensor(self._past))

    def _settle(self, *given: Any, **options: Any) -> None:
        settle: Any = settle_hidden_lengths_reference
        settle(*given[:-1], self._answers, **options)


class Slots(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ranks = [Rank() for _ in range(RANKS)]
        self.hidden: dict[int, int] = {}
        """Of each live request, by its slot."""

    @rule(
        leave=st.sets(SLOT),
        brief=st.dictionaries(SLOT, TOKENS, max_size=2),
        come=st.dictionaries(SLOT, st.tuples(TOKENS, TOKENS)),
        runs=st.sets(SLOT),
    )
    def step(self, leave: set[int], brief: dict[int, int], come: dict[int, tuple[int, int]], runs: set[int]) -> None:
        """brief: restored tokens of requests that left before a step saw them. come: restored and unwritten ones."""
        for slot in leave:
            self.hidden.pop(slot, None)
        taken = set(self.hidden)
        came = [(slot, restored) for slot, restored in brief.items() if slot not in taken]
        unwritten = dict(came)
        for slot, (restored, past) in come.items():
            if slot not in taken:
                came.append((slot, restored))
                past = min(past, restored)
                unwritten |= {slot: past} if restored else {}
                self.hidden[slot] = min(-(-past // BLOCK), restored // BLOCK) * BLOCK
        batch = sorted(runs & set(self.hidden))

        (judged, hides), *others = [rank.step(came, unwritten, batch) for rank in self.ranks]

        assert hides == [self.hidden[slot] for slot in batch]
        assert all(other == (judged, hides) for other in others)

    @rule(rank=st.integers(0, RANKS - 1), slots=st.sets(SLOT))
    def answers_come_over(self, rank: int, slots: set[int]) -> None:
        self.ranks[rank].answer(slots)

    @rule()
    def all_answers_come_over(self) -> None:
        live = np.array(sorted(self.hidden), dtype=np.int64)
        for rank in self.ranks:
            rank.answer(set(range(SLOTS)))
            assert rank.context.hides_in(live) == any(self.hidden.values())
            assert not (rank.context.mirror.idle and any(self.hidden.values()))


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=200, stateful_step_count=20, deadline=None, derandomize=True)
