"""Sums over ranks where vLLM's own NCCL communicator is off."""

from dspark_cli.patches.patch import Patch, Place, Reading, Status, Symbol

PATCH = Patch(
    name="sums_without_pynccl",
    title="where PyNccl is off, context-parallel ranks sum through torch and do not read memory that nobody wrote",
    symbols=(
        Symbol("distributed/device_communicators/cuda_communicator.py", "CudaCommunicator.reduce_scatter"),
        Symbol("distributed/device_communicators/pynccl.py", "PyNcclCommunicator.reduce_scatter"),
        Symbol("distributed/device_communicators/base_device_communicator.py", "DeviceCommunicatorBase.reduce_scatter"),
    ),
    readings=(
        Reading(
            Status.APPLIES,
            (
                "distributed/device_communicators/cuda_communicator.py: CudaCommunicator.reduce_scatter returns an "
                "empty tensor, which PyNcclCommunicator.reduce_scatter (pynccl.py) leaves as it is where it is off: "
                "by VLLM_DISABLE_PYNCCL, or for an NCCL without a function that vLLM wants. all_gather takes torch then"
            ),
            {"0.26.0": "ee9da497354bbb6c", "0.32.0": "50ecd20f2ac2aa4e"},
        ),
    ),
    entry="dspark_cli.patches.fixes.sums_without_pynccl:apply",
    place=Place.RUNNER_V2,
)
