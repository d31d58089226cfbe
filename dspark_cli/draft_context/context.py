"""The draft context of one worker: what each request's restored rows are worth, and what is hidden of them.

It knows no model runner. `runner_v1` and `runner_v2` tell it of admissions and draft steps, and act on what it says.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from dspark_kernels import hidden_lengths, written_rows, written_rows_reference
from dspark_kernels.draft_groups import hidden_alignment
from dspark_kernels.hidden_lengths import COUNTED, MOST_ADMISSIONS
from dspark_kernels.written_rows import Admission, GroupRows, WrittenRows

from dspark_cli.draft_context.policy import Policy

MaximumOverRanks = Callable[[torch.Tensor], None]


@dataclass(frozen=True)
class RowStore:
    """The rows of all draft groups, and the filter that knows which of them the drafter wrote."""

    groups: tuple[GroupRows, ...]
    written: WrittenRows

    def forget(self) -> None:
        """As if no row had been written."""
        self.written.forget()
        for group in self.groups:
            group.rows.recorded.zero_()


@dataclass(frozen=True)
class Kernels:
    """The same four steps on a GPU and in plain PyTorch."""

    record: Callable[..., None]
    find_unwritten: Callable[..., None]
    zero_unwritten: Callable[..., None]
    settle: Callable[..., None]


ON_GPU = Kernels(
    written_rows.record_written_rows,
    written_rows.find_unwritten_rows,
    written_rows.zero_unwritten_rows,
    hidden_lengths.settle_hidden_lengths,
)
ANYWHERE = Kernels(
    written_rows_reference.record_written_rows_reference,
    written_rows_reference.find_unwritten_rows_reference,
    written_rows_reference.zero_unwritten_rows_reference,
    hidden_lengths.settle_hidden_lengths_reference,
)


class DraftContext:
    """Hidden lengths by request slot, kept on the device; a mirror on the host says which slots may have any.

    hidden_tokens: int32 [slots], whole blocks of every draft group. counts: int64 [len(COUNTED)], since start.
    """

    def __init__(
        self,
        policy: Policy,
        store: RowStore,
        num_slots: int,
        device: torch.device,
        maximum_over_ranks: MaximumOverRanks | None = None,
    ) -> None:
        self.policy = policy
        self.store = store
        self.alignment = hidden_alignment([group.group for group in store.groups])
        self.hidden_tokens = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self.counts = torch.zeros(len(COUNTED), dtype=torch.int64, device=device)
        self.mirror = HiddenMirror(num_slots, device)
        self._unjudged: dict[int, int] = {}
        self._to_clear: set[int] = set()
        self._past_unwritten = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self._maximum_over_ranks = maximum_over_ranks
        self._pins = device.type == "cuda"
        self._kernels = ON_GPU if device.type == "cuda" else ANYWHERE

    def admit(self, slot: int, restored_tokens: int) -> None:
        """A request took `slot`, with its first tokens restored. Its rows are judged in the next draft step.

        Who is judged follows from the admissions alone, never from the mirror: its answers come over at other times on
        other ranks, and ranks that judge must all do so in the same step.
        """
        if self.mirror.may_hide[slot]:
            self._to_clear.add(slot)
        if restored_tokens:
            self._unjudged[slot] = restored_tokens
        else:
            self._unjudged.pop(slot, None)
        self.mirror.admit(slot, restored_tokens > 0)

    def unjudged(self) -> dict[int, int]:
        """Restored tokens by slot, of the requests that were admitted with any since the last call."""
        unjudged, self._unjudged = self._unjudged, {}
        return unjudged

    def carry_over(self, slots: dict[int, int]) -> torch.Tensor:
        """slots: restored tokens by slot, as `unjudged` gives them. int32 [3, slots] on the device: the slots, their
        restored tokens, and the numbers of their latest admissions. Does not wait for the device."""
        # Rows that begin at multiples of 16 bytes: Triton compiles a kernel once more for one that does not.
        here = torch.zeros(3, -(-len(slots) // 4) * 4, dtype=torch.int32, pin_memory=self._pins)
        here.numpy()[:, : len(slots)] = [list(slots), list(slots.values()), self.mirror.numbers_of(slots)]
        return here.to(self.hidden_tokens.device, non_blocking=True)[:, : len(slots)]

    def hides_in(self, slots: np.ndarray) -> bool:
        """Whether something may be hidden of a request in one of `slots`. Where it may, what was hidden of requests
        that left is cleared first. Never waits for the device."""
        if self.policy is Policy.OFF or not self.mirror.may_hide_in(slots):
            return False
        if self._to_clear:
            there = self.carry_over(dict.fromkeys(self._to_clear, 0))
            self.hidden_tokens.index_fill_(0, there[0].long(), 0)
            self._to_clear.clear()
        return True

    def record(self, group: int, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        """The drafter has just stored context rows of draft group `group`; see `record_written_rows`."""
        self._kernels.record(self.store.written, self.store.groups[group].rows, slots, tokens, positions)

    def judge(self, slots: dict[int, int], there: torch.Tensor, admission: Admission) -> None:
        """Set the hidden lengths of admitted requests. slots: restored tokens by slot, in the order of `admission`;
        there: the same on the device, as `carry_over` gives it.

        Nothing waits for the device. The rows of the last, partial block cannot be hidden: those that the drafter did
        not write are zeroed, once, for nobody can use them.
        """
        if self.policy is Policy.OFF:
            return
        self._to_clear.difference_update(slots)
        self.store.written.expect(sum(slots.values()) * len(self.store.groups))
        past = self._past_unwritten[: len(slots)]
        self._kernels.find_unwritten(self.store.written, self.store.groups, admission, past)
        if self._maximum_over_ranks is not None:
            self._maximum_over_ranks(past)
        if any(restored % self.alignment for restored in slots.values()):
            self._kernels.zero_unwritten(self.store.written, self.store.groups, admission, self.alignment)
        self._settle(past, there)
        self.mirror.follow(slots)

    def _settle(self, past: torch.Tensor, there: torch.Tensor) -> None:
        self._kernels.settle(
            past,
            there[1],
            there[0],
            self.hidden_tokens,
            self.counts,
            there[2],
            self.mirror.answers,
            alignment=self.alignment,
            hide_all=self.policy is Policy.RESTORED,
        )

    def warm_up(self, token_ids: torch.Tensor, tables: tuple[torch.Tensor, ...]) -> None:
        """Launch once, for nobody, what records and judges: nothing is left to compile when the first request with
        restored tokens comes, and what cannot be compiled fails at the start. The arguments are `Admission`'s."""
        nobody = torch.full((1,), -1, dtype=torch.int64, device=token_ids.device)
        there = self.carry_over({-1: 0})
        past = self._past_unwritten[:1]
        admission = Admission(there[0], there[1], 1, token_ids, tables, (nobody,) * len(tables))
        for group in range(len(self.store.groups)):
            self.record(group, nobody, there[1], nobody)
        self._kernels.find_unwritten(self.store.written, self.store.groups, admission, past)
        self._kernels.zero_unwritten(self.store.written, self.store.groups, admission, self.alignment)
        self._settle(past, there)

    def forget(self) -> None:
        """The caches have lost their content."""
        with torch.inference_mode():
            self.store.forget()

    def totals(self) -> dict[str, int]:
        """What `counts` holds, by name. Waits for the device."""
        return dict(zip(COUNTED, self.counts.tolist(), strict=True))


class HiddenMirror:
    """On the host, which slots may have hidden tokens: `may_hide`, bool [slots]; `idle` says that none may, and that no
    answer is awaited.

    A slot with restored tokens may, until the device's answer that it has none is there. So a request whose restored
    rows are all good costs later steps nothing. answers: int32 [slots], which the device writes and the host reads; see
    `settle_hidden_lengths`.
    """

    def __init__(self, num_slots: int, device: torch.device) -> None:
        self.may_hide = np.zeros(num_slots, dtype=np.bool_)
        self.idle = True
        self.answers = torch.full((num_slots,), -1, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._answers = self.answers.numpy()
        self._number = [0] * num_slots
        self._awaited: dict[int, int] = {}
        self._may_hide_any = False

    def admit(self, slot: int, restored: bool) -> None:
        left_hidden = self.may_hide[slot] and not restored
        self.may_hide[slot] = restored
        self._may_hide_any = bool(self.may_hide.any()) if left_hidden else self._may_hide_any or restored
        self.idle &= not restored
        self._number[slot] = (self._number[slot] + 1) % MOST_ADMISSIONS
        self._awaited.pop(slot, None)

    def numbers_of(self, slots: Iterable[int]) -> list[int]:
        """Of the latest admission to each slot."""
        return [self._number[slot] for slot in slots]

    def follow(self, slots: Iterable[int]) -> None:
        """The device was asked about the latest admissions to `slots`; `catch_up` reads the answers when they come."""
        self._awaited.update((slot, self._number[slot]) for slot in slots)
        self.idle = not (self._may_hide_any or self._awaited)

    def may_hide_in(self, slots: np.ndarray) -> bool:
        self.catch_up()
        return self._may_hide_any and bool(self.may_hide[slots].any())

    def catch_up(self) -> None:
        """Take in the answers that have come. Never waits for the device."""
        answered = [slot for slot, number in self._awaited.items() if self._answers[slot] >> 1 == number]
        for slot in answered:
            self.may_hide[slot] = self._answers[slot] & 1
            del self._awaited[slot]
        if answered:
            self._may_hide_any = bool(self.may_hide.any())
        self.idle = not (self._may_hide_any or self._awaited)
