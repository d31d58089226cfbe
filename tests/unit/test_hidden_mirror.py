"""What the host knows of hidden tokens: the latest admission of a slot counts, however late an answer comes."""

from typing import Any, cast

import numpy as np
import torch

from dspark_cli.draft_context.context import HiddenMirror

CPU = torch.device("cpu")
STALE, GOOD = 32, 0


class LateEvent:
    """Of a copy on the device's stream."""

    def __init__(self) -> None:
        self.over = False

    def query(self) -> bool:
        return self.over


class Mirrored:
    """Four request slots, and the device's hidden lengths of them."""

    def __init__(self) -> None:
        self.mirror = HiddenMirror(4, CPU)
        self.hidden = torch.zeros(4, dtype=torch.int32)

    def judge(self, found: dict[int, int]) -> None:
        """found: hidden tokens by slot. The answer is on its way to the host when this is over."""
        slots = torch.tensor(list(found))
        self.hidden[slots] = torch.tensor(list(found.values()), dtype=torch.int32)
        self.mirror.follow(dict.fromkeys(found, 99), self.hidden, slots)

    def answers_come_late(self) -> "LateEvent":
        """Those under way, when the event says so."""
        event = LateEvent()
        for at, (_, *answer) in enumerate(self.mirror._under_way):
            self.mirror._under_way[at] = cast(Any, (event, *answer))
        return event

    def may_hide(self) -> list[int]:
        self.mirror.catch_up()
        slots: list[int] = np.flatnonzero(self.mirror.may_hide).tolist()
        assert [slot for slot in range(4) if self.mirror.may_hide_in(np.array([slot]))] == slots
        return slots


def test_nothing_is_hidden_at_first() -> None:
    assert Mirrored().may_hide() == []


def test_a_slot_with_restored_tokens_may_hide_until_the_answer_comes() -> None:
    mirrored = Mirrored()

    mirrored.mirror.admit(1, restored=True)
    mirrored.mirror.admit(2, restored=False)

    assert mirrored.may_hide() == [1]


def test_the_answer_says_which_slots_hide() -> None:
    mirrored = Mirrored()
    for slot in (0, 1, 3):
        mirrored.mirror.admit(slot, restored=True)

    mirrored.judge({3: STALE, 0: GOOD})

    assert mirrored.may_hide() == [1, 3]


def test_a_late_answer_does_not_hide_of_a_slot_that_was_taken_without_restored_tokens() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: STALE})

    mirrored.mirror.admit(1, restored=False)

    assert mirrored.may_hide() == []


def test_a_late_answer_does_not_clear_a_slot_whose_new_request_is_not_judged_yet() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.mirror.admit(2, restored=True)
    mirrored.judge({1: GOOD, 2: GOOD})

    mirrored.mirror.admit(1, restored=True)

    assert mirrored.may_hide() == [1]


def test_of_several_answers_the_one_of_the_latest_admission_stands() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: STALE})
    mirrored.mirror.admit(1, restored=True)

    mirrored.judge({1: GOOD})

    assert mirrored.may_hide() == []


def test_an_answer_is_of_its_own_time() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: STALE})

    mirrored.hidden.zero_()

    assert mirrored.may_hide() == [1]


def test_no_admission_is_no_answer() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(0, restored=True)

    mirrored.mirror.follow({}, mirrored.hidden, torch.tensor([], dtype=torch.int64))

    assert mirrored.may_hide() == [0]


def test_it_is_idle_while_nothing_may_be_hidden_and_no_answer_is_awaited() -> None:
    mirrored = Mirrored()
    idle = [mirrored.mirror.idle]

    mirrored.mirror.admit(0, restored=False)
    idle.append(mirrored.mirror.idle)
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: GOOD})
    answer = mirrored.answers_come_late()
    mirrored.may_hide()
    idle.append(mirrored.mirror.idle)
    answer.over = True
    mirrored.may_hide()
    idle.append(mirrored.mirror.idle)

    assert idle == [True, True, False, True]


def test_it_is_not_idle_while_a_slot_that_was_taken_anew_awaits_its_own_answer() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: GOOD})
    first = mirrored.answers_come_late()
    mirrored.mirror.admit(1, restored=True)

    first.over = True
    waiting = mirrored.may_hide(), mirrored.mirror.idle
    mirrored.judge({1: STALE})
    hidden = mirrored.may_hide(), mirrored.mirror.idle
    mirrored.mirror.admit(1, restored=False)
    mirrored.judge({1: GOOD})

    assert waiting == ([1], False)
    assert hidden == ([1], False)
    assert mirrored.may_hide() == []
    assert mirrored.mirror.idle
