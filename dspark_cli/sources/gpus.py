"""The NVIDIA GPUs of this machine, from NVML."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    memory_bytes: int
    driver: str
    compute_capability: str


def read_gpus() -> list[Gpu]:
    """All GPUs that NVML sees; none where there is no NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [_read(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _read(index: int, driver: str) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    return Gpu(index, pynvml.nvmlDeviceGetName(handle), memory, driver, f"{major}.{minor}")
