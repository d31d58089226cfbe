"""Write the draft context of a step in which model runner V1 skips the drafter.

V1 asks once for the whole batch whether it fits the drafter. One request beyond the drafter's length, and nobody's
context KV is written in that step, though the blocks are cached as if it were: whoever hits them later drafts from what
lay there before. The fix stores the context rows of such a step, and leaves the rest as it is: no drafts.
"""

from typing import Any

import torch

STEP = "_dspark_step"
"""The attribute of vLLM's model runner that holds the step being sampled."""
PAD_SLOT = -1


def apply() -> None:
    """Wrap V1's model runner. Applying twice is applying once."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from dspark_cli.draft_context.wrapping import wrap

    wrap(GPUModelRunner, "sample_tokens", _sample_tokens)
    wrap(GPUModelRunner, "_input_fits_in_drafter", _input_fits_in_drafter)


def _sample_tokens(stock: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
    # Stock clears the state before it asks whether the step fits the drafter.
    setattr(runner, STEP, runner.execute_model_state)
    try:
        return stock(runner, *args, **kwargs)
    finally:
        setattr(runner, STEP, None)


def _input_fits_in_drafter(stock: Any, runner: Any, metadata: Any) -> bool:
    fits: bool = stock(runner, metadata)
    step = getattr(runner, STEP, None)
    if not fits and metadata is not None and step is not None and runner.speculative_config.use_dflash():
        store_context_rows(runner, step, metadata)
    return fits


def store_context_rows(runner: Any, step: Any, metadata: Any) -> None:
    """Store the draft context of all tokens of `step` (vLLM's ExecuteModelState) at positions that the drafter has.

    Rows of drafts that were rejected are stored as well: their slots are written again before anyone reads them, for
    the target takes those positions anew.
    """
    drafter, count = runner.drafter, step.scheduler_output.total_num_scheduled_tokens
    positions = runner._get_positions(count)
    if positions.dim() != 1:
        return  # M-RoPE: the drafter's positions are not the target's
    states = step.hidden_states[:count]
    if runner.use_aux_hidden_state_outputs:
        states = torch.cat([each[:count] for each in step.aux_hidden_states], dim=-1)
    within = positions < drafter_positions(drafter)
    slots = torch.where(within, metadata.slot_mapping[:count], PAD_SLOT)
    positions = torch.where(within, positions, 0)
    drafter.model.precompute_and_store_context_kv(drafter.model.combine_hidden_states(states), positions, slots)

    from dspark_cli.draft_context.runner_v1 import rows_stored

    rows_stored(drafter, slots, runner.input_ids.gpu[:count], positions)


def drafter_positions(drafter: Any) -> int:
    """Positions that the drafter's rotary table has; no row can be made beyond."""
    inner = getattr(drafter.model, "model", drafter.model)
    table = getattr(inner, "_rope_cos_sin_cache", None)
    if table is not None:
        return int(table.shape[0])
    return int(drafter.draft_model_config.hf_config.max_position_embeddings)
