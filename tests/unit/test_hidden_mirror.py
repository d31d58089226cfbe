"""What the host knows of hidden tokens: the latest admission of a slot counts, however late an answer comes."""

import numpy as np
import torch
from dspark_kernels.hidden_lengths import MOST_ADMISSIONS

from dspark_cli.draft_context.context import HiddenMirror

CPU = torch.device("cpu")
STALE, GOOD = 32, 0


class Mirrored:
    """Four request slots, and a device that answers at once, or late."""

    def __init__(self) -> None:
        self.mirror = HiddenMirror(4, CPU)
        self._late: list[tuple[int, int]] = []

    def judge(self, found: dict[int, int], *, late: bool = False) -> None:
        """found: hidden tokens by slot."""
        numbers = self.mirror.numbers_of(found)
        self._late += [
            (slot, 2 * number + (hidden > 0)) for (slot, hidden), number in zip(found.items(), numbers, strict=True)
        ]
        self.mirror.follow(found)
        if not late:
            self.late_answers_come()

    def late_answers_come(self) -> None:
        for slot, answer in self._late:
            self.mirror.answers[slot] = answer
        self._late.clear()

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
    mirrored.judge({1: STALE}, late=True)

    mirrored.mirror.admit(1, restored=False)
    mirrored.late_answers_come()

    assert mirrored.may_hide() == []


def test_a_late_answer_does_not_clear_a_slot_whose_new_request_is_not_judged_yet() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.mirror.admit(2, restored=True)
    mirrored.judge({1: GOOD, 2: GOOD}, late=True)

    mirrored.mirror.admit(1, restored=True)
    mirrored.late_answers_come()

    assert mirrored.may_hide() == [1]


def test_a_late_answer_does_not_clear_a_slot_whose_new_request_awaits_its_own() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: GOOD})
    mirrored.mirror.admit(1, restored=True)

    mirrored.judge({1: STALE}, late=True)
    waiting = mirrored.may_hide()
    mirrored.late_answers_come()

    assert waiting == [1]
    assert mirrored.may_hide() == [1]


def test_of_several_answers_the_one_of_the_latest_admission_stands() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: STALE})
    mirrored.mirror.admit(1, restored=True)

    mirrored.judge({1: GOOD})

    assert mirrored.may_hide() == []


def test_no_admission_is_no_answer() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(0, restored=True)

    mirrored.mirror.follow({})

    assert mirrored.may_hide() == [0]


def test_it_is_idle_while_nothing_may_be_hidden_and_no_answer_is_awaited() -> None:
    mirrored = Mirrored()
    idle = [mirrored.mirror.idle]

    mirrored.mirror.admit(0, restored=False)
    idle.append(mirrored.mirror.idle)
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: GOOD}, late=True)
    mirrored.may_hide()
    idle.append(mirrored.mirror.idle)
    mirrored.late_answers_come()
    mirrored.may_hide()
    idle.append(mirrored.mirror.idle)

    assert idle == [True, True, False, True]


def test_it_is_not_idle_while_a_slot_that_was_taken_anew_awaits_its_own_answer() -> None:
    mirrored = Mirrored()
    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: GOOD}, late=True)
    mirrored.mirror.admit(1, restored=True)

    mirrored.late_answers_come()
    waiting = mirrored.may_hide(), mirrored.mirror.idle
    mirrored.judge({1: STALE})
    hidden = mirrored.may_hide(), mirrored.mirror.idle
    mirrored.mirror.admit(1, restored=False)
    mirrored.judge({1: GOOD})

    assert waiting == ([1], False)
    assert hidden == ([1], False)
    assert mirrored.may_hide() == []
    assert mirrored.mirror.idle


def test_numbers_of_admissions_begin_anew_before_an_answer_has_no_room_for_them() -> None:
    mirrored = Mirrored()
    mirrored.mirror._number[1] = MOST_ADMISSIONS - 1

    mirrored.mirror.admit(1, restored=True)
    mirrored.judge({1: STALE})

    assert mirrored.mirror.numbers_of([1]) == [0]
    assert mirrored.may_hide() == [1]
