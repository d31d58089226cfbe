"""Tensor-parallel ranks hold other heads of the same rows. They draft together, so they must hide alike."""

import logging
from typing import Any

import torch

from dspark_cli.draft_context.context import DraftContext, MaximumOverRanks
from dspark_cli.draft_context.installed import HERE

logger = logging.getLogger("vllm.dspark_tool")


def maximum_over_ranks() -> MaximumOverRanks | None:
    """What one rank finds unwritten, all of them must hide. None where there is one rank."""
    ranks = _other_ranks()
    if ranks is None:
        return None

    def reduce(past_unwritten: torch.Tensor) -> None:
        torch.distributed.all_reduce(past_unwritten, op=torch.distributed.ReduceOp.MAX, group=ranks.device_group)

    return reduce


def keep_where_all_ranks_have_one(context: DraftContext | None) -> DraftContext | None:
    """The context of this rank, and None on all ranks where one has none: those that judge would wait for it."""
    ranks = _other_ranks()
    if ranks is not None:
        lacking = torch.tensor([context is None], dtype=torch.int32)
        torch.distributed.all_reduce(lacking, op=torch.distributed.ReduceOp.MAX, group=ranks.cpu_group)
        if context is not None and lacking.any():
            HERE.inactive = "another rank does not understand the draft cache's layout"
            context = None
    if context is not None:
        HERE.context, HERE.inactive = context, None
    else:
        logger.error("draft context: not at work: %s", HERE.inactive)
    return context


def _other_ranks() -> Any:
    """vLLM's tensor-parallel group; None where it has one rank."""
    from vllm.distributed.parallel_state import get_tp_group, model_parallel_is_initialized

    if not model_parallel_is_initialized():
        return None
    ranks = get_tp_group()
    return ranks if ranks.world_size > 1 else None
