"""Sum over ranks through torch where vLLM's own NCCL communicator is off.

vLLM turns PyNccl off where VLLM_DISABLE_PYNCCL says so, and without a word where the NCCL library lacks a function that
it wants. Gathering then goes through torch, but a reduce-scatter returns memory that nobody wrote: under decode context
parallelism that is the target's attention.
"""

from typing import Any

import torch


def apply() -> None:
    """Wrap the communicator. Applying twice is applying once."""
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

    from dspark_cli.draft_context.wrapping import wrap

    wrap(CudaCommunicator, "reduce_scatter", _reduce_scatter)


def _sums_in_a_fixed_order() -> bool:
    """Whether vLLM (0.32 and later, on ROCm) has another way that takes no PyNccl."""
    from vllm import envs
    from vllm.platforms import current_platform

    return bool(envs.VLLM_BATCH_INVARIANT) and current_platform.is_rocm()


def _reduce_scatter(stock: Any, communicator: Any, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
    pynccl = communicator.pynccl_comm
    if (pynccl is None or pynccl.disabled) and not _sums_in_a_fixed_order():
        from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase

        stock = DeviceCommunicatorBase.reduce_scatter
    summed: torch.Tensor = stock(communicator, input_, dim)
    return summed
