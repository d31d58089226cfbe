"""The committed plans of public models: their shape, and that the table for people says what the figures say."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.public_plans import MODELS, RESULTS, TARGETS, render, results

COMMITTED = sorted(RESULTS.glob("vllm-*.json"))
FOLDERS = sorted({name for target in TARGETS for name in (target.model, *(d.model for d in target.drafters))})
GROUP = {
    "groups": 1,
    "layers": 12,
    "draft_layers": 0,
    "kind": "full attention",
    "window": None,
    "block_tokens": 16,
}


def plan(kv_tokens: int, *groups: dict[str, Any]) -> dict[str, Any]:
    return {
        "groups": [{**GROUP, **group} for group in groups],
        "pool_bytes_per_block": 4096,
        "blocks": 1000,
        "kv_tokens": kv_tokens,
        "layout": "LBNHC",
        "bytes_of_a_full_sequence": {"useful": 30, "copies": 20, "total": 100},
    }


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    common = {"tensor_parallel": 2, "max_model_len": 8192, "drafter": None, "plan": None, "refused": None}
    filled = [{"model": "one", **common, **row} for row in rows]
    return {"vllm": "0.0.0", "planned_for": "a GPU", "kv_memory_bytes": 40 << 30, "rows": filled}


def table_rows(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("| one")]


def test_a_release_is_committed() -> None:
    assert COMMITTED


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_committed_table_is_what_the_committed_figures_render_to(path: Path) -> None:
    figures = json.loads(path.read_text())

    for written, text in results(path.with_suffix(""), figures):
        assert written.read_text() == text


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_committed_figures_have_every_deployment_in_order_with_a_plan_or_a_reason(path: Path) -> None:
    figures = json.loads(path.read_text())

    deployments = [(row["model"], row["drafter"] and row["drafter"]["model"]) for row in figures["rows"]]
    assert deployments == [
        (target.model, drafter)
        for target in TARGETS
        for drafter in (None, *(drafter.model for drafter in target.drafters))
    ]
    for row in figures["rows"]:
        assert (row["plan"] is None) != (row["refused"] is None)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_committed_figures_agree_with_each_other(path: Path) -> None:
    figures = json.loads(path.read_text())

    assert f"vllm-{figures['vllm']}".startswith(path.stem)
    for row in figures["rows"]:
        if row["plan"] is None:
            continue
        made, parts = row["plan"], row["plan"]["bytes_of_a_full_sequence"]
        total = parts.pop("total")
        assert sum(parts.values()) == total
        assert made["blocks"] == figures["kv_memory_bytes"] // made["pool_bytes_per_block"]
        assert total == made["pool_bytes_per_block"] * sum(
            group["groups"] * group["blocks_per_sequence"] for group in made["groups"]
        )
        assert (row["drafter"] is not None) == any(group["draft_layers"] for group in made["groups"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_configuration_plans_with_vllms_own_classes_and_has_a_source(folder: str) -> None:
    configuration = json.loads((MODELS / folder / "config.json").read_text())

    assert configuration["architectures"]
    assert "auto_map" not in configuration
    first_column = [line.split("|")[1] for line in (MODELS / "SOURCES.md").read_text().splitlines() if "|" in line]
    assert any(folder in cell.replace(" ", "").split(",") for cell in first_column)


def test_no_configuration_is_left_unplanned() -> None:
    assert sorted(path.parent.name for path in MODELS.glob("*/config.json")) == FOLDERS


def test_equal_groups_are_counted_and_the_drafters_layers_told_apart() -> None:
    windowed = {"kind": "sliding window", "window": 128, "groups": 3}
    shared, draft = {"layers": 10, "draft_layers": 4}, {"layers": 5, "draft_layers": 5}

    (row,) = table_rows(render(document({"plan": plan(1, windowed, shared, draft)})))

    assert "3 groups of 12 sliding(128) x 16 + 6+4 full x 16 + 5 draft full x 16" in row


def test_a_drafters_cost_is_measured_against_its_target_alone() -> None:
    drafter = {"model": "draft", "method": "dflash", "tokens": 7}

    _, row = table_rows(render(document({"plan": plan(1000, {})}, {"plan": plan(750, {}), "drafter": drafter})))

    assert "| draft, 7 tokens |" in row
    assert row.endswith("| 750 | 50% | 25.0% |")


def test_a_refused_deployment_has_its_reason_in_one_line_and_no_figures() -> None:
    (row,) = table_rows(render(document({"refused": "vLLM refuses:\n  a | b " + "word " * 100})))

    assert "refused: vLLM refuses: a \\| b word" in row
    assert len(row) < 250
    assert row.replace("\\|", "").count("|") == 12
