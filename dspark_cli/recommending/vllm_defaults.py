"""What `vllm serve` takes by itself where nobody gives a number: vLLM 0.26 to 0.33, engine/arg_utils.py,
get_batch_defaults. A CPU has its own numbers, which differ by release."""

from dataclasses import dataclass

from dspark_cli.facts.device import Device

LARGEST_FROM, LARGE_FROM = 160 << 30, 70 << 30
FIRST_WITH_LARGEST = (0, 28)
GB10, FIRST_WITH_GB10_APART = (12, 1), (0, 33)
"""A DGX Spark's compute capability: as much memory as a large GPU, and not its speed."""


@dataclass(frozen=True)
class StepDefaults:
    batched_tokens: int
    sequences: int


def step_defaults(device: Device, release: tuple[int, int]) -> StepDefaults | None:
    """None for a CPU, and for a GPU that does not tell its memory."""
    memory, name = device.memory_bytes, device.name.lower()
    if memory is None:
        return None
    if memory >= LARGEST_FROM and release >= FIRST_WITH_LARGEST:
        return StepDefaults(16384, 1024)
    gb10 = device.compute_capability == GB10 and release >= FIRST_WITH_GB10_APART
    if memory >= LARGE_FROM and "a100" not in name and not gb10:
        return StepDefaults(8192, 1024)
    return StepDefaults(2048, 256)
