"""Where the kernels run: a GPU, or Triton's interpreter on the CPU."""

import os
from dataclasses import dataclass

from dspark_cli.errors import NotFit
from dspark_cli.sources.gpus import read_gpus


@dataclass(frozen=True)
class Device:
    """`kind` is cuda or interpreter. Races show on cuda alone: the interpreter runs one program's block at once."""

    kind: str
    name: str
    compute_capability: str | None
    driver: str | None
    torch: str
    triton: str

    @property
    def can_race(self) -> bool:
        return self.kind == "cuda"

    @property
    def torch_device(self) -> str:
        return "cuda" if self.kind == "cuda" else "cpu"


def open_device() -> Device:
    """The first GPU, else the interpreter.

    The interpreter has to be chosen before Triton is imported, and torch may import it: so NVML is asked first.

    Raises:
        NotFit: torch or Triton is missing, or torch cannot use the GPU that is there.
    """
    gpus = read_gpus()
    if not gpus:
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import torch
        import triton
    except ModuleNotFoundError as error:
        raise NotFit(f"stress-shift needs {error.name}", f"pip install 'dspark-tool[kernels]' {error.name}") from None
    except (ImportError, OSError, RuntimeError) as error:
        raise NotFit(f"torch or Triton does not start: {error}", "install them anew: dspark-tool[kernels]") from None
    if not gpus:
        return Device("interpreter", "Triton's interpreter", None, None, torch.__version__, triton.__version__)
    if not torch.cuda.is_available():
        raise NotFit(
            f"there is a GPU ({gpus[0].name}), but torch {torch.__version__} cannot use it",
            "install a CUDA build of torch, or leave the GPU out: CUDA_VISIBLE_DEVICES= dspark-tool stress-shift",
        )
    major, minor = torch.cuda.get_device_capability()
    name, capability = torch.cuda.get_device_name(), f"{major}.{minor}"
    return Device("cuda", name, capability, gpus[0].driver, torch.__version__, triton.__version__)
