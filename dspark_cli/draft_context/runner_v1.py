"""Draft context on model runner V1 (DFlash).

V1 keeps its requests in batch rows that move, so the context keeps slots of its own, by request id. Its block tables
reach the drafter as views of the step, never written to here: the shifted table is a new tensor.
"""

from typing import Any

import numpy as np
import torch
from dspark_kernels.draft_groups import DraftGroup
from dspark_kernels.written_rows import Admission

from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.installed import HERE
from dspark_cli.draft_context.ranks import keep_where_all_ranks_have_one, maximum_over_ranks
from dspark_cli.draft_context.remembering import remembered_cachefuls
from dspark_cli.draft_context.row_store import DraftLayers, build_row_store, cache_of, sliding_window_of, why_inactive
from dspark_cli.draft_context.wrapping import wrap

KEPT = "_dspark_runner_context"
"""The attribute of V1's proposer, which does not know its runner, that holds a RunnerContext."""


class RequestSlots:
    """A slot for each request with restored tokens. The last slot is nobody's, and nothing is ever hidden there."""

    def __init__(self, max_requests: int) -> None:
        self.nobody = max_requests
        self._free = list(range(max_requests))
        self._of: dict[str, int] = {}

    def take(self, request: str) -> int:
        """Nobody's where all are taken: by requests that wait for input, which keep theirs and run in no step."""
        if request not in self._of and self._free:
            self._of[request] = self._free.pop()
        return self.of(request)

    def release(self, request: str) -> None:
        slot = self._of.pop(request, None)
        if slot is not None:
            self._free.append(slot)

    def of(self, request: str) -> int:
        return self._of.get(request, self.nobody)


class RunnerContext:
    """What is kept for one model runner: the context, once there is one, and the requests admitted before."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.slots = RequestSlots(runner.max_num_reqs)
        self.restored: dict[str, int] = {}
        self._context: DraftContext | None = None
        self._tried = False
        self.step_tokens = torch.empty(0, dtype=torch.int32)
        self.step_rejected: torch.Tensor | None = None
        """bool [rows] where the step's context rows have rejected drafts among them."""

    def follow(self, scheduled: Any) -> None:
        """Read a SchedulerOutput: who came, with how much restored, and who left."""
        # A preempted request may wait for long, and would take a slot from those that run.
        for request in scheduled.finished_req_ids | (scheduled.preempted_req_ids or set()):
            self.restored.pop(request, None)
            self.slots.release(request)
        for new in scheduled.scheduled_new_reqs:
            self._admit(new.req_id, new.num_computed_tokens)
        cached = scheduled.scheduled_cached_reqs
        for request, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            if request in cached.resumed_req_ids:
                self._admit(request, computed)

    def context_with(self, proposer: Any) -> DraftContext | None:
        """The context, made at the first call; None where the cache is not understood."""
        if not self._tried:
            self._tried = True
            self._context = keep_where_all_ranks_have_one(_build(proposer, self.runner))
        return self._context

    def _admit(self, request: str, restored_tokens: int) -> None:
        self.restored.pop(request, None)
        self.slots.release(request)
        if restored_tokens:
            self.restored[request] = restored_tokens


def install() -> None:
    """Wrap V1's model runner and its DFlash proposer. Applying twice is applying once."""
    from vllm.v1.spec_decode.dflash import DFlashProposer
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    wrap(GPUModelRunner, "_update_states", _update_states)
    wrap(DFlashProposer, "set_inputs_first_pass", _set_inputs_first_pass)
    wrap(DFlashProposer, "build_model_inputs_first_pass", _build_model_inputs_first_pass)


def _update_states(stock: Any, runner: Any, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
    result = stock(runner, scheduled, *args, **kwargs)
    drafter = getattr(runner, "drafter", None)
    if drafter is None:
        return result  # a pipeline stage before the last
    kept = getattr(drafter, KEPT, None)
    if kept is None:
        kept = RunnerContext(runner)
        setattr(drafter, KEPT, kept)
    kept.follow(scheduled)
    return result


def _set_inputs_first_pass(stock: Any, proposer: Any, *args: Any, **kwargs: Any) -> Any:
    tokens, indices, metadata = stock(proposer, *args, **kwargs)
    kept: RunnerContext = getattr(proposer, KEPT)
    context = kept.context_with(proposer)
    if context is not None:
        kept.step_tokens = kwargs["target_token_ids"]
        kept.step_rejected = _rejected(kept.step_tokens.shape[0], kwargs["cad"], kwargs["num_rejected_tokens_gpu"])
        _hide(kept, context, proposer, metadata)
    return tokens, indices, metadata


def _build_model_inputs_first_pass(stock: Any, proposer: Any, *args: Any, **kwargs: Any) -> Any:
    result = stock(proposer, *args, **kwargs)
    kept: RunnerContext = getattr(proposer, KEPT)
    slots = _slots_of_step(kept, proposer)
    count = slots.shape[0]
    rows_stored(proposer, slots, kept.step_tokens[:count], proposer._context_positions_buffer[:count])
    return result


def _slots_of_step(kept: RunnerContext, proposer: Any) -> torch.Tensor:
    """Where the step's context rows go, -1 for those of rejected drafts."""
    slots: torch.Tensor = proposer._context_slot_mapping_buffer[: proposer._dflash_num_context]
    rejected = kept.step_rejected
    return slots if rejected is None else slots.masked_fill(rejected[: slots.shape[0]], -1)


def _rejected(rows: int, metadata: Any, rejected_tokens: torch.Tensor | None) -> torch.Tensor | None:
    """Which context rows are of rejected drafts. V1 stores them, the next step writes over them, and in the filter they
    would take the room of rows that stay."""
    if rejected_tokens is None:
        return None
    starts = metadata.query_start_loc
    row = torch.arange(rows, dtype=starts.dtype, device=starts.device)
    request = torch.searchsorted(starts[1:], row, right=True).clamp(max=metadata.num_reqs - 1)
    rejected: torch.Tensor = row >= starts[request + 1] - rejected_tokens[request]
    return rejected


def rows_stored(proposer: Any, slots: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor) -> None:
    """The drafter has just stored context rows at `slots`, for these tokens and positions; each [rows]."""
    kept: RunnerContext | None = getattr(proposer, KEPT, None)
    if kept is not None and (context := kept.context_with(proposer)) is not None:
        context.store.written.expect(slots.shape[0])
        context.record(0, slots, tokens, positions)


def _hide(kept: RunnerContext, context: DraftContext, proposer: Any, metadata: Any) -> None:
    requests = kept.runner.input_batch.req_ids[: metadata.num_reqs]
    admitted = {row: kept.restored.pop(request) for row, request in enumerate(requests) if request in kept.restored}
    for row, restored in list(admitted.items()):
        slot = kept.slots.take(requests[row])
        if slot == kept.slots.nobody:
            del admitted[row]
        else:
            context.admit(slot, restored)
    if context.unjudged():
        _judge(kept, context, proposer, metadata, requests, admitted)
    slots = np.full(metadata.num_reqs, kept.slots.nobody)
    slots[: len(requests)] = [kept.slots.of(request) for request in requests]
    if not context.hides_in(slots):
        return
    hidden = context.hidden_tokens[torch.from_numpy(slots).to(proposer.device, non_blocking=True)]
    # A restore that failed takes a request back behind what was hidden of it.
    most = (metadata.seq_lens - metadata.max_query_len).clamp(min=0) // proposer.block_size * proposer.block_size
    hidden = torch.minimum(hidden, most)
    metadata.seq_lens = metadata.seq_lens - hidden
    table = metadata.block_table_tensor
    entries = torch.arange(table.shape[1], device=table.device)
    moved = entries[None, :] + (hidden // proposer.block_size)[:, None]
    metadata.block_table_tensor = table.gather(1, moved.clamp(max=table.shape[1] - 1))


def _judge(
    kept: RunnerContext,
    context: DraftContext,
    proposer: Any,
    metadata: Any,
    requests: list[str],
    admitted: dict[int, int],
) -> None:
    device = proposer.device
    rows = list(admitted)
    most = max(admitted.values())
    tokens = kept.runner.input_batch.token_ids_cpu_tensor[rows, :most].to(device, non_blocking=True)
    slots = {kept.slots.of(requests[row]): restored for row, restored in admitted.items()}
    there = context.carry_over(slots)
    admission = Admission(
        rows=torch.arange(len(rows), dtype=torch.int32, device=device),
        restored_tokens=there[1],
        most_restored=most,
        token_ids=tokens,
        tables=(metadata.block_table_tensor[rows],),
        coming=(_slots_of_step(kept, proposer),),
    )
    context.judge(slots, there, admission)


def _build(proposer: Any, runner: Any) -> DraftContext | None:
    layers = runner.vllm_config.compilation_config.static_forward_context
    names = sorted(proposer._draft_attn_layer_names)
    cache_group = runner.kv_cache_config.kv_cache_groups[proposer.kv_cache_gid]
    spec = cache_group.kv_cache_spec
    draft = DraftLayers(
        group=DraftGroup(proposer.block_size, sliding_window=sliding_window_of(spec, names)),
        caches=[cache_of(layers[name]) for name in names],
        num_slots=runner.kv_cache_config.num_blocks * spec.block_size,
    )

    def store_rows(slots: torch.Tensor, _group: int) -> None:
        states = torch.randn(slots.shape[0], proposer.hidden_size, device=proposer.device).to(proposer.dtype)
        positions = torch.arange(slots.shape[0], device=proposer.device)
        proposer.model.precompute_and_store_context_kv(states, positions, slots)

    try:
        remembered = remembered_cachefuls(runner.vllm_config)
        store = build_row_store([draft], store_rows, proposer.device, remembered)
        context = DraftContext(HERE.policy, store, runner.max_num_reqs + 1, proposer.device, maximum_over_ranks())
        table = runner.input_batch.block_table[proposer.kv_cache_gid].get_device_tensor(1)
        context.warm_up(torch.zeros(1, 1, dtype=torch.int32, device=proposer.device), (table,))
    except Exception as error:  # whatever it is, the server must run, and other ranks wait for this one's word
        HERE.inactive = why_inactive(error)
        return None
    return context
