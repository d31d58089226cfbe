"""Make vLLM plan for a platform that this machine does not have.

vLLM asks its platform object for capabilities when it parses arguments, picks attention backends, block sizes and
layouts, and builds models. Nothing of that runs a kernel. So an object that answers as a GPU would is enough to plan
for one, with vLLM's own code throughout. What is missing beside the object is compiled or belongs to a GPU: modules
(given as inert ones), operators (given as ones that do nothing) and streams. Nothing computes in such a process.

Call `stand_in` before anything imports vLLM.
"""

import sys
from types import SimpleNamespace
from typing import Any

from dspark_cli.inside_vllm.inert import Inert, InertModule, give_inert_modules

OPERATORS = (
    *("_C", "_C_cache_ops", "_moe_C", "_custom_ar", "_vllm_fa2_C", "_vllm_fa3_C"),
    *("_flashmla_C", "_flashkda_C", "_deep_gemm_C"),
)
GPU_LIBRARIES = ("cutlass", "cuda", "flashinfer", "quack", "torchvision")
GPU_PARTS = ("vllm.third_party.flashmla", "vllm.third_party.deep_gemm", "vllm.vllm_flash_attn.cute")
TILE_KERNELS = ("vllm.tilelang_utils", "vllm.model_executor.kernels.mhc.tilelang_kernels")
"""Python files of vLLM that compile when imported."""
MULTIPROCESSORS = 132


def stand_in(platform: str, gpu: dict[str, Any] | None) -> None:
    """Let vLLM take this machine for `platform` (cuda or cpu); `gpu` has the fields of `facts.gpu_kind.GpuKind`."""
    _remember_that_images_cannot_be_resized()
    give_inert_modules(_is_missing)
    _forgive_missing_operators()
    if gpu is not None:
        _answer_as_gpu(gpu)
    import vllm.platforms

    vllm.platforms._current_platform = _cuda(gpu) if gpu is not None else _cpu()
    _say_that_deep_gemm_is_there()


def _is_missing(module: str) -> bool:
    last = module.rpartition(".")[2]
    compiled = module.startswith("vllm.") and last.startswith("_") and "_C" in last
    return compiled or module.split(".")[0] in GPU_LIBRARIES or module.startswith(GPU_PARTS)


def _remember_that_images_cannot_be_resized() -> None:
    """transformers asks once whether torchvision is there, and then for its version, which an inert one has not."""
    import transformers.utils.import_utils as optional

    optional.is_torchvision_available()


def _say_that_deep_gemm_is_there() -> None:
    """vLLM's GPU build brings it."""
    import vllm.utils.deep_gemm

    vllm.utils.deep_gemm.has_deep_gemm = lambda: True


def _answer_as_gpu(gpu: dict[str, Any]) -> None:
    """What model code asks of CUDA beside the platform object."""
    import torch

    for name in TILE_KERNELS:
        sys.modules[name] = InertModule(name)
    major, minor = gpu["compute_capability"]
    properties = SimpleNamespace(
        name=gpu["device_name"],
        major=major,
        minor=minor,
        total_memory=gpu["memory_bytes"],
        multi_processor_count=MULTIPROCESSORS,
        shared_memory_per_block_optin=232448,
    )
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda *_: properties  # type: ignore[assignment]
    torch.cuda.current_stream = lambda *_: Inert()  # type: ignore[assignment]
    torch.cuda.Stream = torch.cuda.Event = Inert  # type: ignore[misc, assignment]
    torch.accelerator.empty_cache = lambda: None


class _Operator:
    """Stands where an operator would; answers "no" when asked for a capability."""

    def __call__(self, *_: Any, **__: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> "_Operator":
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Operators:
    """An operator namespace of torch with something in every place."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._real, name)
        except AttributeError:
            return _Operator()


def _forgive_missing_operators() -> None:
    import torch

    for namespace in OPERATORS:
        torch.ops.__dict__[namespace] = _Operators(getattr(torch.ops, namespace))
    register_fake = torch.library.register_fake

    def register_fake_of_what_exists(op: Any, func: Any = None, /, **options: Any) -> Any:
        def register(function: Any) -> Any:
            try:
                return register_fake(op, **options)(function)
            except RuntimeError:  # torch knows no such operator
                return function

        return register if func is None else register(func)

    torch.library.register_fake = register_fake_of_what_exists


def _cuda(gpu: dict[str, Any]) -> Any:
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    capability = DeviceCapability(*gpu["compute_capability"])

    class StandInCuda(NonNvmlCudaPlatform):  # type: ignore[misc]
        """As many GPUs of one kind as a plan asks for, fully connected."""

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return capability

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return str(gpu["device_name"])

        @classmethod
        def get_device_uuid(cls, device_id: int = 0) -> str:
            return f"GPU-{device_id}"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return int(gpu["memory_bytes"])

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return MULTIPROCESSORS

        @classmethod
        def is_fully_connected(cls, device_ids: list[int]) -> bool:
            return True

        @classmethod
        def is_integrated_gpu(cls, device_id: int = 0) -> bool:
            return False

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 13

        @classmethod
        def import_kernels(cls) -> None:
            pass

    return StandInCuda()


def _cpu() -> Any:
    from vllm.platforms.cpu import CpuPlatform

    return CpuPlatform()
