"""From the last unwritten row to what is hidden: the step after `find_unwritten_rows`, and after ranks have agreed."""

import torch
import triton
import triton.language as tl

from dspark_kernels.launch_checks import INDEX_DTYPES, require_vector

COUNTED = ("admissions", "restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")
"""What is counted of admissions with restored tokens. restored = valid + hidden + zeroed, always."""
ADMISSIONS_A_ROUND = 128
MOST_ADMISSIONS = 1 << 30
"""Of a request slot, before their numbers begin anew: an answer holds one and a bit."""


@triton.jit(do_not_specialize=["admitted"])  # type: ignore[untyped-decorator]
def settle_kernel(
    past_unwritten: tl.tensor,
    restored_tokens: tl.tensor,
    request_slots: tl.tensor,
    admitted: tl.tensor,
    hidden_tokens: tl.tensor,
    counts: tl.tensor,
    numbers: tl.tensor,
    answers: tl.tensor,
    alignment: tl.constexpr,
    hide_all: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """See `settle_hidden_lengths`. Grid: (1,), so that the sums need no atomics."""
    admissions = tl.zeros((block,), tl.int64)
    restored_sum, hidden_sum, zeroed_sum = admissions, admissions, admissions
    for start in tl.range(0, admitted, block, num_stages=1):
        at = start + tl.arange(0, block)
        live = at < admitted
        slot = tl.load(request_slots + at, mask=live, other=-1).to(tl.int64)
        live = live & (slot >= 0)
        restored = tl.load(restored_tokens + at, mask=live, other=0)
        past = tl.load(past_unwritten + at, mask=live, other=0)
        whole = restored - restored % alignment
        if hide_all:
            past = tl.maximum(past, whole)
        hidden = tl.minimum((past + alignment - 1) // alignment * alignment, whole)
        tl.store(hidden_tokens + slot, hidden, mask=live)
        number = tl.load(numbers + at, mask=live, other=0)
        tl.store(answers + slot, number * 2 + (hidden > 0).to(tl.int32), mask=live)
        tl.store(past_unwritten + at, 0, mask=at < admitted)
        admissions += (restored > 0).to(tl.int64)
        restored_sum += restored
        hidden_sum += hidden
        zeroed_sum += tl.maximum(past - whole, 0)
    restored_total, hidden_total, zeroed_total = tl.sum(restored_sum), tl.sum(hidden_sum), tl.sum(zeroed_sum)
    tl.store(counts, tl.load(counts) + tl.sum(admissions))
    tl.store(counts + 1, tl.load(counts + 1) + restored_total)
    tl.store(counts + 2, tl.load(counts + 2) + restored_total - hidden_total - zeroed_total)
    tl.store(counts + 3, tl.load(counts + 3) + hidden_total)
    tl.store(counts + 4, tl.load(counts + 4) + zeroed_total)


def settle_hidden_lengths(
    past_unwritten: torch.Tensor,
    restored_tokens: torch.Tensor,
    request_slots: torch.Tensor,
    hidden_tokens: torch.Tensor,
    counts: torch.Tensor,
    numbers: torch.Tensor,
    answers: torch.Tensor,
    *,
    alignment: int,
    hide_all: bool,
) -> None:
    """Set the hidden length of each admitted request, and count.

    With C restored tokens, W = C rounded down to `alignment` and P = past_unwritten (with `hide_all` at least W):
    hidden = min(P rounded up to `alignment`, W), zeroed = max(P - W, 0) and valid = C - hidden - zeroed. What is zeroed
    lies in the last, partial block, which cannot be hidden: `zero_unwritten_rows` has stored zeros there.

    past_unwritten, restored_tokens: int32 [admitted]; past_unwritten is zeros afterwards. request_slots: int32 or int64
    [admitted]; -1 is skipped. hidden_tokens: int32 [requests], by request slot; others stay. counts: int64
    [len(COUNTED)], added to; admissions without restored tokens are not counted.

    numbers: int32 [admitted], of each admission, below MOST_ADMISSIONS. answers: int32 [requests], by request slot, in
    memory that the host reads without waiting (pinned, where the rest is on a GPU): gets 2 * number, and 1 more where
    tokens are hidden, in one store. So the host knows from the answer alone whether it is there, and whose it is.

    Raises ValueError on wrong dtypes, shapes or devices. Launches nothing for no admission.
    """
    admitted = request_slots.shape[0]
    require_vector("past_unwritten", past_unwritten, like=counts, at_least=admitted)
    require_vector("restored_tokens", restored_tokens, like=counts, at_least=admitted)
    require_vector("request_slots", request_slots, like=counts, dtypes=INDEX_DTYPES)
    require_vector("hidden_tokens", hidden_tokens, like=counts)
    require_vector("counts", counts, like=counts, at_least=len(COUNTED), dtypes=(torch.int64,))
    require_vector("numbers", numbers, like=counts, at_least=admitted)
    require_vector("answers", answers, like=answers, at_least=hidden_tokens.shape[0])
    if admitted == 0:
        return
    settle_kernel[(1,)](
        past_unwritten,
        restored_tokens,
        request_slots,
        admitted,
        hidden_tokens,
        counts,
        numbers,
        answers,
        alignment=alignment,
        hide_all=hide_all,
        block=ADMISSIONS_A_ROUND,
        num_warps=1,
    )


def settle_hidden_lengths_reference(
    past_unwritten: torch.Tensor,
    restored_tokens: torch.Tensor,
    request_slots: torch.Tensor,
    hidden_tokens: torch.Tensor,
    counts: torch.Tensor,
    numbers: torch.Tensor,
    answers: torch.Tensor,
    *,
    alignment: int,
    hide_all: bool,
) -> None:
    """`settle_hidden_lengths` in plain PyTorch."""
    admitted, live = request_slots.shape[0], request_slots >= 0
    restored, past, number = (each[:admitted][live] for each in (restored_tokens, past_unwritten, numbers))
    whole = restored - restored % alignment
    past = torch.maximum(past, whole) if hide_all else past
    hidden = torch.minimum((past + alignment - 1) // alignment * alignment, whole)
    zeroed = torch.clamp(past - whole, min=0)
    where = request_slots[live].long()
    hidden_tokens[where] = hidden
    answers[where] = (2 * number + (hidden > 0).int()).to(answers.device)
    past_unwritten[:admitted] = 0
    counts += torch.stack([(restored > 0).int(), restored, restored - hidden - zeroed, hidden, zeroed]).sum(1)
