"""The order of loads, barriers and stores in the code compiled for a GPU, whatever the compiler did on the way."""

import json
import os
import re
import subprocess
import sys

import pytest

Compiled = dict[str, list[tuple[str, list[str]]]]


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    """Kernel name -> (launch, its basic blocks)."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiled_order"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
        check=True,
    )
    found: Compiled = {}
    for line in done.stdout.splitlines():
        name, launch, blocks = json.loads(line)
        found.setdefault(name, []).append((launch, blocks))
    return found


@pytest.mark.parametrize("kernel", ["shift", "masking"])
def test_a_barrier_stands_between_all_loads_of_a_chunk_and_its_first_store(compiled: Compiled, kernel: str) -> None:
    for launch, blocks in compiled[kernel]:
        moving = [block for block in blocks if len(re.findall("S", block)) > 1]
        assert moving, f"{launch}: the row is moved somewhere"
        for block in moving:
            assert re.fullmatch(r"L+B+S+", block), f"{launch}: {block}"


def test_the_shortened_length_is_stored_behind_a_barrier(compiled: Compiled) -> None:
    for launch, blocks in compiled["masking"]:
        before, _, after = "".join(blocks).rpartition("B")
        assert re.search("L", before), launch
        assert re.fullmatch("S+", after), f"{launch}: {blocks}"


def test_the_control_has_no_barrier_there(compiled: Compiled) -> None:
    for launch, blocks in compiled["unguarded shift"]:
        moving = [block for block in blocks if block.count("S") > 1]
        assert moving, launch
        assert all(re.fullmatch("L+S+", block) for block in moving), f"{launch}: {moving}"
