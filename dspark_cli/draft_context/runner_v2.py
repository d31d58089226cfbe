"""Draft context on model runner V2: DFlash, DSpark, and every other head on vLLM's DFlashSpeculator.

Where it acts in a draft step, all on the step's stream:

* `prepare_dflash_inputs` has written the step's sequence lengths and slot mappings, and the input block tables still
  hold what the target used. Requests admitted since the last step are judged there, and hidden tokens are taken out of
  lengths and tables, in place: captured graphs and attention metadata read those very buffers afterwards. Rows that
  this step has yet to store (it may be for one request what another has restored) are in the slot mappings.
* `_precompute_context_kv` has stored context rows; they are recorded. vLLM captures that call in the draft's graph, and
  our launch with it, so a replayed step costs the host nothing.

Dummy runs do neither. A step without any request that has restored tokens launches nothing of ours but the recording.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup
from dspark_kernels.draft_masking import mask_draft_context
from dspark_kernels.written_rows import Admission

from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.installed import HERE
from dspark_cli.draft_context.ranks import keep_where_all_ranks_have_one, maximum_over_ranks
from dspark_cli.draft_context.remembering import remembered_cachefuls
from dspark_cli.draft_context.row_store import DraftLayers, build_row_store, cache_of, sliding_window_of, why_inactive
from dspark_cli.draft_context.wrapping import replace, wrap

KEPT = "_dspark_drafting"
"""The attribute of vLLM's speculator, its input buffers and its request states that holds a Drafting."""
TOLD_OF_CAPACITY = 32
"""The filter is told of rows by so many parts of its capacity; it need not be to the row."""


@dataclass
class Drafting:
    """What is kept for one speculator. The context is made with the first real use of its final caches.

    of: the speculator, which must not live longer for our sake. all_token_ids: of vLLM's request states. admitted:
    restored tokens of requests that no draft step has seen, by request slot. dummy: a dummy run is under way.
    rows_left: rows that may be stored before a draft step looks at any of this again; below 0 it does at once.
    """

    of: "weakref.ref[Any]"
    all_token_ids: Any
    context: DraftContext | None = None
    tables: DraftBlockTables | None = None
    tried: bool = False
    dummy: bool = False
    rows_left: int = 0
    admitted: dict[int, int] = field(default_factory=dict)
    _rows_given: int = 0
    _rows_stored: int = 0

    def look_after(self, rows: int) -> None:
        """Let draft steps pass until they have stored more than `rows` rows; with 0 the next one looks."""
        self._rows_stored += self._rows_given - self.rows_left
        self._rows_given = self.rows_left = rows

    def take_rows_stored(self) -> int:
        """By draft steps since the last call."""
        self.look_after(0)
        rows, self._rows_stored = self._rows_stored, 0
        return rows


def install() -> None:
    """Wrap V2's request states, model runner and speculator. Applying twice is applying once."""
    import vllm.v1.worker.gpu.spec_decode.dflash.speculator as dflash
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu.states import RequestState

    wrap(RequestState, "add_request", _add_request)
    wrap(GPUModelRunner, "initialize_kv_cache", _initialize_kv_cache)
    wrap(GPUModelRunner, "_dummy_run", _dummy_run)
    wrap(dflash.DFlashSpeculator, "capture", _capture)
    wrap(dflash.DFlashSpeculator, "_precompute_context_kv", _precompute_context_kv)
    replace(dflash, "prepare_dflash_inputs", _preparing)


def _initialize_kv_cache(stock: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
    result = stock(runner, *args, **kwargs)
    # Called for a trial allocation first. No context is made of that one: it would keep the trial's caches alive.
    speculator = runner.speculator
    if hasattr(speculator, "draft_kv_cache_group_ids"):
        trial = bool(kwargs.get("is_profiling"))
        drafting = Drafting(weakref.ref(speculator), runner.req_states.all_token_ids, tried=trial)
        for keeps in (speculator, speculator.input_buffers, runner.req_states):
            setattr(keeps, KEPT, drafting)
    return result


def _dummy_run(stock: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
    drafting: Drafting | None = getattr(runner.speculator, KEPT, None)
    if drafting is None:
        return stock(runner, *args, **kwargs)
    drafting.dummy = True
    try:
        return stock(runner, *args, **kwargs)
    finally:
        drafting.dummy = False


def _capture(stock: Any, speculator: Any, *args: Any, **kwargs: Any) -> Any:
    _context_of(speculator)
    return stock(speculator, *args, **kwargs)


def _add_request(stock: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
    result = stock(states, *args, **kwargs)
    drafting: Drafting | None = getattr(states, KEPT, None)
    if drafting is not None:
        slot = states.req_id_to_index[kwargs["req_id"]]
        drafting.admitted[slot] = kwargs["num_computed_tokens"]
        drafting.look_after(0)
    return result


def _preparing(stock: Callable[..., Any]) -> Callable[..., Any]:
    # Every step runs this, with caches that the step before has emptied: each look-up is felt.
    def prepare_dflash_inputs(
        input_buffers: Any,
        query_slot_mapping: Any,
        context_positions: Any,
        context_slot_mapping: Any,
        sample_indices: Any,
        sample_pos: Any,
        sample_idx_mapping: Any,
        temperature: Any,
        seeds: Any,
        input_batch: Any,
        *args: Any,
    ) -> Any:
        result = stock(
            input_buffers,
            query_slot_mapping,
            context_positions,
            context_slot_mapping,
            sample_indices,
            sample_pos,
            sample_idx_mapping,
            temperature,
            seeds,
            input_batch,
            *args,
        )
        drafting: Drafting | None = input_buffers.__dict__.get(KEPT)
        if drafting is not None:
            drafting.rows_left -= input_batch.num_tokens
            if drafting.rows_left < 0:
                _look(drafting, input_batch, context_slot_mapping)
        return result

    return prepare_dflash_inputs


def _look(drafting: Drafting, batch: Any, context_slot_mapping: torch.Tensor) -> None:
    """A draft step has prepared the inputs of one draft group. What there is to do waits for the last one."""
    speculator = drafting.of()
    if drafting.dummy or not _is_last_group(speculator, context_slot_mapping):
        return
    context = drafting.context or _context_of(speculator)
    if context is None:
        drafting.look_after(1 << 62)
        return
    written = context.store.written
    written.expect(drafting.take_rows_stored())
    if drafting.admitted or not context.mirror.idle:
        _hide(drafting, context, speculator, batch)
    if context.mirror.idle:
        drafting.look_after(written.capacity // TOLD_OF_CAPACITY)


def _is_last_group(speculator: Any, context_slot_mapping: torch.Tensor) -> bool:
    mappings = speculator._context_slot_mappings
    return len(mappings) == 1 or bool(context_slot_mapping.data_ptr() == mappings[-1].data_ptr())


def _precompute_context_kv(
    stock: Any, speculator: Any, start: int, end: int, dummy_run: bool = False, **kwargs: Any
) -> Any:
    result = stock(speculator, start, end, dummy_run, **kwargs)
    drafting = getattr(speculator, KEPT, None)
    if drafting is not None and drafting.context is not None and not dummy_run:
        tokens = speculator.target_input_buffers.input_ids[start:end]
        positions = speculator.context_positions[start:end]
        for group in range(len(speculator.draft_kv_cache_group_ids)):
            drafting.context.record(group, speculator._context_slot_mappings[group][start:end], tokens, positions)
    return result


def _hide(drafting: Drafting, context: DraftContext, speculator: Any, batch: Any) -> None:
    if drafting.admitted:
        for slot, restored in drafting.admitted.items():
            context.admit(slot, restored)
        drafting.admitted.clear()
        unjudged = context.unjudged()
        if unjudged:
            _judge(drafting, context, speculator, batch.num_tokens, unjudged)
    if not context.hides_in(batch.idx_mapping_np):
        return
    assert drafting.tables is not None
    mask_draft_context(
        drafting.tables,
        speculator.input_buffers.seq_lens,
        batch.idx_mapping,
        context.hidden_tokens,
        speculator.num_query_per_req,
    )


def _judge(
    drafting: Drafting, context: DraftContext, speculator: Any, step_tokens: int, unjudged: dict[int, int]
) -> None:
    there = context.carry_over(unjudged)
    tables = speculator.block_tables.block_tables
    admission = Admission(
        rows=there[0],
        restored_tokens=there[1],
        most_restored=max(unjudged.values()),
        token_ids=drafting.all_token_ids.gpu,
        tables=tuple(tables[group].gpu for group in speculator.draft_kv_cache_group_ids),
        coming=tuple(slots[:step_tokens] for slots in speculator._context_slot_mappings),
    )
    context.judge(unjudged, there, admission)


def _context_of(speculator: Any) -> DraftContext | None:
    drafting: Drafting | None = getattr(speculator, KEPT, None)
    if drafting is None:
        return None
    if not drafting.tried:
        drafting.tried = True
        try:
            context = _build(speculator, drafting)
        except Exception as error:  # whatever it is, the server must run, and other ranks wait for this one's word
            context = None
            HERE.inactive = why_inactive(error)
        drafting.context = keep_where_all_ranks_have_one(context)
    return drafting.context


def _build(speculator: Any, drafting: Drafting) -> DraftContext:
    groups = [_draft_layers(speculator, group) for group in speculator.draft_kv_cache_group_ids]
    width = speculator.hidden_states.shape[1]

    def store_rows(slots: torch.Tensor, group: int) -> None:
        count = slots.shape[0]
        states = torch.randn(count, width, device=speculator.device).to(speculator.dtype)
        positions = torch.arange(count, device=speculator.device)
        of_layers = speculator._layer_group_idx
        where = slots if of_layers is None else [slots if of == group else None for of in of_layers]
        speculator.model.precompute_and_store_context_kv(states, positions, where)

    store = build_row_store(groups, store_rows, speculator.device, remembered_cachefuls(speculator.vllm_config))
    tables = [speculator.block_tables.input_block_tables[group] for group in speculator.draft_kv_cache_group_ids]
    drafting.tables = DraftBlockTables([layers.group for layers in groups], tables)
    context = DraftContext(HERE.policy, store, speculator.max_num_reqs, speculator.device, maximum_over_ranks())
    kept = tuple(speculator.block_tables.block_tables[group].gpu for group in speculator.draft_kv_cache_group_ids)
    context.warm_up(drafting.all_token_ids.gpu, kept)
    nobody = torch.full((1,), -1, dtype=torch.int32, device=speculator.device)
    mask_draft_context(
        drafting.tables,
        speculator.input_buffers.seq_lens,
        nobody,
        context.hidden_tokens,
        speculator.num_query_per_req,
    )
    return context


def _draft_layers(speculator: Any, group: int) -> DraftLayers:
    cache_group = speculator.kv_cache_config.kv_cache_groups[group]
    names = sorted(speculator.draft_attn_layer_names & set(cache_group.layer_names))
    layers = speculator.vllm_config.compilation_config.static_forward_context
    tables = speculator.block_tables
    return DraftLayers(
        group=DraftGroup(
            block_size=tables.block_sizes[group],
            cp_size=speculator.dcp_size,
            cp_interleave=tables.cp_interleave,
            sliding_window=sliding_window_of(cache_group.kv_cache_spec, names),
        ),
        caches=[cache_of(layers[name]) for name in names],
        num_slots=speculator.kv_cache_config.num_blocks * tables.block_sizes[group],
        cp_rank=tables.cp_rank if speculator.dcp_size > 1 else 0,
    )
