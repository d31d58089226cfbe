"""Which GPUs a program started here can use."""

import pytest

from dspark_cli.sources.gpus import visible

UUIDS = ["GPU-aa11-0", "GPU-aa22-1", "GPU-bb33-2"]


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("", []),
        ("-1", []),
        ("0,-1,2", [0]),
        ("0,7,2", [0]),
        ("1,1", []),
        ("0,2,0", []),
        ("1abc,2", [1, 2]),
        ("9" * 5000, []),
        ("GPU-bb33-2,GPU-aa11", [2, 0]),
        ("GPU-aa", []),
        ("0,nonsense", [0]),
        ("MIG-cc44-3", ["MIG-cc44-3"]),
        ("0,MIG-cc44-3", [0]),
    ],
)
def test_cuda_visible_devices_decides_which_gpus_are_seen_and_in_which_order(
    named: str | None, shown: list[int | str]
) -> None:
    assert visible(UUIDS, named) == shown
