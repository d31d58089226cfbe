"""The GPUs that a plan can be made for without having one."""

from dataclasses import dataclass

from dspark_cli.errors import BadInput


@dataclass(frozen=True)
class GpuKind:
    """What vLLM asks a GPU for before it plans: its name, its compute capability and how much memory it has."""

    name: str
    device_name: str
    """As NVML reports it."""
    compute_capability: tuple[int, int]
    memory_bytes: int


GPU_KINDS = (
    GpuKind("a100", "NVIDIA A100-SXM4-80GB", (8, 0), 80 << 30),
    GpuKind("l40s", "NVIDIA L40S", (8, 9), 46068 << 20),
    GpuKind("h100", "NVIDIA H100 80GB HBM3", (9, 0), 81559 << 20),
    GpuKind("h200", "NVIDIA H200", (9, 0), 143771 << 20),
    GpuKind("b200", "NVIDIA B200", (10, 0), 183359 << 20),
    GpuKind("rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 97887 << 20),
)
DEFAULT_GPU = "h100"


def gpu_kind(name: str) -> GpuKind:
    """Raises BadInput for a name that is not in `GPU_KINDS`."""
    for kind in GPU_KINDS:
        if kind.name == name.lower():
            return kind
    known = ", ".join(kind.name for kind in GPU_KINDS)
    raise BadInput(f"--gpu {name!r} is not known", f"choose the nearest of: {known}")
