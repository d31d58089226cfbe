"""What vLLM takes by itself for a step, by GPU and release, as its get_batch_defaults has it."""

import pytest

from dspark_cli.facts.device import Device
from dspark_cli.recommending.vllm_defaults import step_defaults

GIB = 1 << 30
A100 = Device("NVIDIA A100-SXM4-80GB", 1, (8, 0), 80 * GIB)
L40S = Device("NVIDIA L40S", 1, (8, 9), 46068 << 20)
H200 = Device("NVIDIA H200", 1, (9, 0), 143771 << 20)
B200 = Device("NVIDIA B200", 1, (10, 0), 183359 << 20)
WORKSTATION = Device("NVIDIA RTX PRO 6000 Blackwell Server Edition", 1, (12, 0), 97887 << 20)
GB10 = Device("NVIDIA GB10", 1, (12, 1), 119 * GIB)


@pytest.mark.parametrize(
    ("device", "release", "batched_tokens", "sequences"),
    [
        (A100, (0, 33), 2048, 256),
        (L40S, (0, 33), 2048, 256),
        (H200, (0, 33), 8192, 1024),
        (B200, (0, 33), 16384, 1024),
        (B200, (0, 27), 8192, 1024),
        (WORKSTATION, (0, 33), 8192, 1024),
        (GB10, (0, 33), 2048, 256),
        (GB10, (0, 32), 8192, 1024),
    ],
)
def test_step_defaults(device: Device, release: tuple[int, int], batched_tokens: int, sequences: int) -> None:
    defaults = step_defaults(device, release)

    assert defaults is not None
    assert (defaults.batched_tokens, defaults.sequences) == (batched_tokens, sequences)


def test_a_cpu_has_its_own_numbers() -> None:
    assert step_defaults(Device("CPU, 2 cores", 1), (0, 33)) is None
