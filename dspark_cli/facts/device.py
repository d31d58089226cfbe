"""What a model is to be served on."""

from dataclasses import dataclass

UNKNOWN_GPU = (0, 0)
"""The compute capability of a GPU that is not here, or does not tell it."""


@dataclass(frozen=True)
class Device:
    """`compute_capability` and `memory_bytes` (of one GPU) are None for a CPU, and where a GPU does not tell them."""

    name: str
    count: int
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None

    @property
    def is_gpu(self) -> bool:
        return self.compute_capability is not None

    @property
    def architecture(self) -> str:
        """sm90, or cpu."""
        if self.compute_capability is None:
            return "cpu"
        major, minor = self.compute_capability
        return f"sm{major}{minor}"

    def __str__(self) -> str:
        return self.name if self.count <= 1 else f"{self.count} x {self.name}"
