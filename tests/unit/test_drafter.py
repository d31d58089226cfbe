"""What a drafter's config.json says, against what vLLM made of public checkpoints."""

import json
from typing import Any

import pytest

from dspark_cli.facts.drafter import drafter_facts
from dspark_cli.sources.checkpoint import Method, read_checkpoint
from tests.paths import TESTS

BENCHMARKS = TESTS.parent / "benchmarks"
PLANNED = [
    row
    for row in json.loads((BENCHMARKS / "results" / "public-plans" / "vllm-0.33.json").read_text())["rows"]
    if row["drafter"] and row.get("plan")
]


@pytest.mark.parametrize("row", PLANNED, ids=[f"{row['model']}+{row['drafter']['model']}" for row in PLANNED])
def test_layers_in_the_cache_are_those_that_vllm_planned(row: dict[str, Any]) -> None:
    checkpoint = read_checkpoint(str(BENCHMARKS / "public_models" / row["drafter"]["model"]))

    layers = drafter_facts(checkpoint, Method(row["drafter"]["method"]), None).layers_in_cache

    planned = sum(group["groups"] * group["draft_layers"] for group in row["plan"]["groups"])
    assert layers in (planned, None)


def test_most_of_them_say_how_many_layers_they_have() -> None:
    said = [
        drafter_facts(
            read_checkpoint(str(BENCHMARKS / "public_models" / row["drafter"]["model"])),
            Method(row["drafter"]["method"]),
            None,
        ).layers_in_cache
        for row in PLANNED
    ]

    assert sum(layers is not None for layers in said) > len(said) / 2 > 5
