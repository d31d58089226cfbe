"""What `vllm serve` takes by itself where nobody gives a number: vLLM 0.26 to 0.33, engine/arg_utils.py,
get_batch_defaults. A CPU has its own numbers, which differ by release."""

from dataclasses import dataclass

from dspark_cli.facts.device import Device

LARGEST_FROM, LARGE_FROM = 160 << 30, 70 << 30
FIRST_WITH_LARGEST = (0, 28)


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
    if memory >= LARGE_FROM and "a100" not in name:
        return StepDefaults(8192, 1024)
    return StepDefaults(2048, 256)
