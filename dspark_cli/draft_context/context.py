"""The draft context of one worker: what each request's restored rows are worth, and what is hidden of them.

It knows no model runner. `runner_v1` and `runner_v2` tell it of admissions and draft steps, and act on what it says.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from dspark_kernels import written_rows, written_rows_reference
from dspark_kernels.draft_groups import hidden_alignment
from dspark_kernels.written_rows import Admission, GroupRows, WrittenRows

from dspark_cli.draft_context.policy import Policy

COUNTED = ("admissions", "restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")

MaximumOverRanks = Callable[[torch.Tensor], None]


@dataclass(frozen=True)
class RowStore:
    """The rows of all draft groups, and the filter that knows which of them the drafter wrote."""

    groups: tuple[GroupRows, ...]
    written: WrittenRows


class DraftContext:
    """Hidden lengths by request slot, kept on the device; a mirror on the host says which slots have any.

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
        self._restored = np.zeros(num_slots, dtype=np.int32)
        self._unjudged: dict[int, int] = {}
        self._maximum_over_ranks = maximum_over_ranks
        self._kernels = written_rows if device.type == "cuda" else None
        self._device = device

    def admit(self, slot: int, restored_tokens: int) -> None:
        """A request took `slot`, with its first tokens restored. Its rows are judged in the next draft step."""
        if restored_tokens or self._restored[slot]:
            self._unjudged[slot] = restored_tokens
        self._restored[slot] = restored_tokens

    def unjudged(self) -> dict[int, int]:
        """Restored tokens by slot, of the requests admitted since the last call."""
        unjudged, self._unjudged = self._unjudged, {}
        return unjudged

    def hides_in(self, slots: np.ndarray) -> bool:
        """Whether something may be hidden of a request in one of `slots`. Never asks the device."""
        return bool(self._restored[slots].any())

    def record(self, group: int, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        """The drafter has just stored context rows of draft group `group`; see `record_written_rows`."""
        rows = self.store.groups[group].rows
        if self._kernels is not None:
            written_rows.record_written_rows(self.store.written, rows, slots, tokens, positions)
        else:
            written_rows_reference.record_written_rows_reference(self.store.written, rows, slots, tokens, positions)

    def judge(self, slots: torch.Tensor, admission: Admission) -> None:
        """Set the hidden lengths of admitted requests. slots: int64 [admitted], where `hidden_tokens` keeps them.

        All of it stays on the device. The rows of the last, partial block cannot be hidden: those that the drafter did
        not write are zeroed, once, for nobody can use them.
        """
        restored = admission.restored_tokens
        whole = restored // self.alignment * self.alignment
        past = torch.zeros_like(restored)
        self._find_unwritten(admission, past)
        if self._maximum_over_ranks is not None:
            self._maximum_over_ranks(past)
        if self.policy is Policy.RESTORED:
            past = torch.maximum(past, whole)
        aligned = (past + self.alignment - 1) // self.alignment * self.alignment
        hidden = torch.minimum(aligned, whole)
        zeroed = torch.clamp(past - whole, min=0)
        if self.alignment > 1:
            self._zero_unwritten(admission)
        self.hidden_tokens[slots] = hidden
        sums = torch.stack([torch.ones_like(restored), restored, restored - hidden - zeroed, hidden, zeroed])
        sums[:, restored == 0] = 0
        self.counts += sums.sum(1)

    def forget(self) -> None:
        """The caches have lost their content."""
        self.store.written.forget()

    def totals(self) -> dict[str, int]:
        """What `counts` holds, by name. Waits for the device."""
        return dict(zip(COUNTED, self.counts.tolist(), strict=True))

    def _find_unwritten(self, admission: Admission, past: torch.Tensor) -> None:
        if self._kernels is not None:
            written_rows.find_unwritten_rows(self.store.written, self.store.groups, admission, past)
        else:
            written_rows_reference.find_unwritten_rows_reference(self.store.written, self.store.groups, admission, past)

    def _zero_unwritten(self, admission: Admission) -> None:
        if self._kernels is not None:
            written_rows.zero_unwritten_rows(self.store.written, self.store.groups, admission, self.alignment)
        else:
            written_rows_reference.zero_unwritten_rows_reference(
                self.store.written, self.store.groups, admission, self.alignment
            )
