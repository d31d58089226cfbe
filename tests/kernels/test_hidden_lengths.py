"""What is hidden of an admission: whole blocks of what was restored; every restored token is accounted for."""

from dataclasses import dataclass, field

import pytest
import torch
from dspark_kernels.hidden_lengths import (
    ADMISSIONS_A_ROUND,
    COUNTED,
    settle_hidden_lengths,
    settle_hidden_lengths_reference,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.tables import GUARD, int32

MOST_ADMITTED = 300
MOST_RESTORED = 1 << 30
CPU = torch.device("cpu")


@dataclass
class Batch:
    """Admissions at distinct request slots, some skipped. `hidden` and `counts` hold something already."""

    past: torch.Tensor
    restored: torch.Tensor
    slots: torch.Tensor
    hidden: torch.Tensor
    counts: torch.Tensor
    numbers: torch.Tensor = field(init=False)
    answers: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = torch.arange(7, 7 + self.slots.shape[0], dtype=torch.int32, device=self.slots.device)
        self.answers = host_memory(self.hidden.shape[0], self.hidden.device)

    def settled(self, alignment: int, *, hide_all: bool, kernel: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden lengths and counts; `answers` keeps what the host reads."""
        past, hidden, counts = self.past.clone(), self.hidden.clone(), self.counts.clone()
        self.answers.fill_(-1)
        settle = settle_hidden_lengths if kernel else settle_hidden_lengths_reference
        settle(
            past,
            self.restored,
            self.slots,
            hidden,
            counts,
            self.numbers,
            self.answers,
            alignment=alignment,
            hide_all=hide_all,
        )
        if hidden.is_cuda:
            torch.cuda.synchronize()
        assert not past.any(), "the next admissions begin with zeros"
        return hidden, counts


def host_memory(entries: int, device: torch.device) -> torch.Tensor:
    """Pinned where the kernel runs on a GPU."""
    return torch.full((entries,), -1, dtype=torch.int32, pin_memory=device.type == "cuda")


def batch_of(
    device: torch.device, past: list[int], restored: list[int], slots: list[int] | None = None, *, num_slots: int = 8
) -> Batch:
    return Batch(
        past=int32(past, device),
        restored=int32(restored, device),
        slots=int32(list(range(len(past))) if slots is None else slots, device),
        hidden=torch.full((num_slots,), GUARD, dtype=torch.int32, device=device),
        counts=torch.zeros(len(COUNTED), dtype=torch.int64, device=device),
    )


def drawn_batch(device: torch.device, admitted: int, most: int, *, skipped: bool, seed: int) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    restored = torch.randint(0, most + 1, (admitted,), generator=draw)
    # None, some or all of the rows unwritten: what find_unwritten_rows answers never exceeds what was restored.
    past = (restored * torch.rand(admitted, generator=draw, dtype=torch.float64) * 1.5 - 0.25 * restored).long()
    past = past.clamp(min=0).minimum(restored)
    slots = torch.randperm(MOST_ADMITTED, generator=draw)[:admitted]
    if skipped:
        slots[torch.rand(admitted, generator=draw) < 0.3] = -1
    return Batch(
        past=past.to(device, torch.int32),
        restored=restored.to(device, torch.int32),
        slots=slots.to(device, torch.int32 if seed % 2 else torch.int64),
        hidden=torch.full((MOST_ADMITTED,), GUARD, dtype=torch.int32, device=device),
        counts=torch.randint(0, 1 << 40, (len(COUNTED),), generator=draw).to(device),
    )


admissions = {
    "admitted": st.integers(0, MOST_ADMITTED),
    "most": st.sampled_from([0, 1, 100, 70_000, MOST_RESTORED]),
    "alignment": st.integers(1, 512),
    "hide_all": st.booleans(),
    "skipped": st.booleans(),
    "seed": st.integers(0, 1000),
}
any_admissions = settings(
    max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@any_admissions
@given(**admissions)
def test_any_admissions_are_settled_as_the_reference_says(
    device: torch.device, admitted: int, most: int, alignment: int, hide_all: bool, skipped: bool, seed: int
) -> None:
    batch = drawn_batch(device, admitted, most, skipped=skipped, seed=seed)
    expected = *batch.settled(alignment, hide_all=hide_all, kernel=False), batch.answers.clone()

    found = *batch.settled(alignment, hide_all=hide_all), batch.answers

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@any_admissions
@given(**admissions)
def test_every_restored_token_is_valid_hidden_or_zeroed_and_whole_blocks_are_hidden(
    device: torch.device, admitted: int, most: int, alignment: int, hide_all: bool, skipped: bool, seed: int
) -> None:
    batch = drawn_batch(device, admitted, most, skipped=skipped, seed=seed)
    live = batch.slots >= 0
    restored, past = batch.restored[live], batch.past[live]

    hidden, counts = batch.settled(alignment, hide_all=hide_all)

    added = dict(zip(COUNTED, (counts - batch.counts).tolist(), strict=True))
    of_each = hidden[batch.slots[live].long()]
    assert added["restored_tokens"] == added["valid_tokens"] + added["hidden_tokens"] + added["zeroed_tokens"]
    assert added["restored_tokens"] == int(restored.sum())
    assert added["hidden_tokens"] == int(of_each.sum())
    assert added["admissions"] == int((restored > 0).sum())
    assert min(added.values()) >= 0
    assert ((of_each % alignment == 0) & (of_each >= 0) & (of_each <= restored)).all()
    assert (restored - of_each < alignment).all() or not hide_all
    assert ((of_each >= past) | (restored - of_each < alignment)).all()  # what stays visible and unwritten is zeroed
    assert int((hidden == GUARD).sum()) == MOST_ADMITTED - int(live.sum())


@pytest.mark.parametrize("admitted", [1, ADMISSIONS_A_ROUND - 1, ADMISSIONS_A_ROUND, ADMISSIONS_A_ROUND + 1, 300])
def test_admissions_of_every_round_are_counted(device: torch.device, admitted: int) -> None:
    batch = batch_of(device, [5] * admitted, [20] * admitted, num_slots=admitted)

    hidden, counts = batch.settled(16, hide_all=False)

    assert (hidden == 16).all()
    assert counts.tolist() == [admitted, 20 * admitted, 4 * admitted, 16 * admitted, 0]


@pytest.mark.parametrize(
    ("past", "restored", "hidden", "zeroed"),
    [
        (0, 0, 0, 0),
        (0, 40, 0, 0),
        (1, 40, 16, 0),
        (16, 40, 16, 0),
        (17, 40, 32, 0),
        (32, 40, 32, 0),
        (33, 40, 32, 1),
        (40, 40, 32, 8),
        (48, 48, 48, 0),
        (3, 15, 0, 3),
    ],
)
def test_unwritten_rows_are_hidden_in_whole_blocks_and_zeroed_in_the_last_partial_one(
    device: torch.device, past: int, restored: int, hidden: int, zeroed: int
) -> None:
    settled, counts = batch_of(device, [past], [restored], [2]).settled(16, hide_all=False)

    assert settled.tolist() == [GUARD, GUARD, hidden, *[GUARD] * 5]
    assert counts.tolist() == [int(restored > 0), restored, restored - hidden - zeroed, hidden, zeroed]


@pytest.mark.parametrize(
    ("past", "restored", "hidden", "zeroed"), [(0, 40, 32, 0), (5, 40, 32, 0), (35, 40, 32, 3), (0, 15, 0, 0)]
)
def test_hiding_all_hides_whole_blocks_though_all_is_written(
    device: torch.device, past: int, restored: int, hidden: int, zeroed: int
) -> None:
    settled, counts = batch_of(device, [past], [restored]).settled(16, hide_all=True)

    assert settled[0] == hidden
    assert counts.tolist() == [1, restored, restored - hidden - zeroed, hidden, zeroed]


def test_a_slot_taken_without_restored_tokens_loses_what_was_hidden_there(device: torch.device) -> None:
    batch = batch_of(device, [0], [0], [3])

    hidden, counts = batch.settled(16, hide_all=True)

    assert hidden[3] == 0
    assert counts.tolist() == [0] * len(COUNTED)


def test_the_host_reads_which_admission_an_answer_is_of_and_whether_it_hides(device: torch.device) -> None:
    batch = batch_of(device, [0, 5, 0], [40, 40, 0], [6, 1, 3])

    batch.settled(16, hide_all=False)

    assert batch.answers.tolist() == [-1, 2 * 8 + 1, -1, 2 * 9, -1, -1, 2 * 7, -1]


def test_skipped_admissions_leave_no_trace(device: torch.device) -> None:
    batch = batch_of(device, [9, 9, 9], [30, 30, 30], [-1, 4, -1])

    hidden, counts = batch.settled(16, hide_all=False)

    assert hidden.tolist() == [*[GUARD] * 4, 16, *[GUARD] * 3]
    assert counts.tolist() == [1, 30, 14, 16, 0]
    assert (batch.answers >= 0).sum() == 1


def test_sums_beyond_32_bits_are_counted(device: torch.device) -> None:
    batch = batch_of(device, [MOST_RESTORED] * 8, [MOST_RESTORED] * 8)

    _, counts = batch.settled(16, hide_all=False)

    assert counts.tolist() == [8, 8 * MOST_RESTORED, 0, 8 * MOST_RESTORED, 0]


def test_no_admission_launches_nothing(device: torch.device) -> None:
    batch = batch_of(device, [], [])

    hidden, counts = batch.settled(16, hide_all=True)

    assert (hidden == GUARD).all()
    assert (counts == 0).all()


@pytest.mark.parametrize(
    ("name", "wrong", "complaint"),
    [
        ("past", torch.zeros(2, dtype=torch.int64), "past_unwritten must be a vector"),
        ("past", torch.zeros(1, dtype=torch.int32), "past_unwritten must have at least 2"),
        ("restored", torch.zeros(2), "restored_tokens must be a vector"),
        ("restored", torch.zeros(1, dtype=torch.int32), "restored_tokens must have at least 2"),
        ("restored", torch.zeros(4, dtype=torch.int32)[::2], "restored_tokens must be contiguous"),
        ("slots", torch.zeros(2, dtype=torch.int16), "request_slots must be a vector"),
        ("slots", torch.zeros(2, 1, dtype=torch.int32), "request_slots must be a vector"),
        ("slots", torch.zeros(2, dtype=torch.int32, device="meta"), "request_slots is on meta"),
        ("hidden", torch.zeros(8, dtype=torch.int64), "hidden_tokens must be a vector"),
        ("hidden", torch.zeros(8, dtype=torch.int32, device="meta"), "hidden_tokens is on meta"),
        ("counts", torch.zeros(len(COUNTED), dtype=torch.int32), "counts must be a vector"),
        ("counts", torch.zeros(len(COUNTED) - 1, dtype=torch.int64), f"counts must have at least {len(COUNTED)}"),
        ("numbers", torch.zeros(1, dtype=torch.int32), "numbers must have at least 2"),
        ("answers", torch.zeros(7, dtype=torch.int32), "answers must have at least 8"),
        ("answers", torch.zeros(8, dtype=torch.int64), "answers must be a vector"),
    ],
)
def test_wrong_arguments_are_refused(name: str, wrong: torch.Tensor, complaint: str) -> None:
    batch = batch_of(CPU, [0, 0], [0, 0])
    setattr(batch, name, wrong)

    with pytest.raises(ValueError, match=complaint):
        batch.settled(16, hide_all=False)
