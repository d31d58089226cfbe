"""Checkpoints: what config.json says about a drafter, and what is wrong with one that says nothing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.errors import BadInput
from dspark_cli.facts.drafter import SLIDING, drafter_facts
from dspark_cli.sources.checkpoint import (
    Checkpoint,
    Method,
    drafter_method,
    positive_int,
    read_checkpoint,
    trained_draft_tokens,
)
from tests.paths import DFLASH, DSPARK, TARGET


@pytest.mark.parametrize(("folder", "method", "tokens"), [(DFLASH, "dflash", 7), (DSPARK, "dspark", 7)])
def test_the_fixture_drafters_say_method_and_tokens(folder: Path, method: str, tokens: int) -> None:
    drafter = read_checkpoint(str(folder))

    assert drafter_method(drafter) == method
    assert trained_draft_tokens(drafter, Method(method)) == tokens


@pytest.mark.parametrize(
    ("config", "method", "tokens"),
    [
        ({"architectures": ["DFlash2DraftModel"], "block_size": 16}, Method.DFLASH, 15),
        ({"speculators_model_type": "dflash", "block_size": 8}, Method.DFLASH, 7),
        (
            {"architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": {"sample_from_anchor": True}},
            Method.DFLASH,
            8,
        ),
        ({"architectures": ["DFlashDraftModel"], "dflash_config": {"block_size": 4}}, Method.DFLASH, 3),
        ({"architectures": ["Gemma4DSparkModel"], "dspark_block_size": 7}, Method.DSPARK, 7),
    ],
)
def test_other_forms_of_config_are_read(config: dict[str, Any], method: Method, tokens: int) -> None:
    drafter = Checkpoint("drafter", config)

    assert drafter_method(drafter) is method
    assert trained_draft_tokens(drafter, method) == tokens


def test_a_target_is_no_drafter() -> None:
    with pytest.raises(BadInput, match="no DFlash or DSpark drafter"):
        drafter_method(read_checkpoint(str(TARGET)))


@pytest.mark.parametrize("architectures", [5, True, "DFlashDraftModel", None, {"a": 1}])
def test_architectures_that_are_no_list_are_no_drafter(architectures: object) -> None:
    with pytest.raises(BadInput, match="no DFlash or DSpark drafter"):
        drafter_method(Checkpoint("drafter", {"architectures": architectures}))


@pytest.mark.parametrize("block_size", [None, "8", 1, 0, -7, True, 7.0])
def test_a_block_size_that_means_nothing_is_refused(block_size: object) -> None:
    with pytest.raises(BadInput, match="block_size"):
        trained_draft_tokens(Checkpoint("drafter", {"block_size": block_size}), Method.DFLASH)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "has no config.json"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[1]", "JSON list, not an object"),
        (b"[" * 100_000, "not valid JSON"),
    ],
    ids=["missing", "cut short", "binary", "a list", "too deep"],
)
def test_a_broken_config_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(BadInput, match=reason):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "nowhere", "a/b/c", "", "x" * 300, "a\0b"])
def test_a_path_that_is_not_there_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadInput, match=r"no model folder|no config\.json|cannot be looked at"):
        read_checkpoint(name)


def test_a_hub_name_that_is_not_in_the_cache_is_named_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(BadInput, match="cannot be had"):
        read_checkpoint("nobody/no-such-model")


def test_a_config_that_is_no_plain_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")

    with pytest.raises(BadInput, match="is no file of at most"):
        read_checkpoint(str(tmp_path))


def test_a_file_is_no_model_folder(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text(json.dumps({}))

    with pytest.raises(BadInput, match="is a file"):
        read_checkpoint(str(file))


@pytest.mark.parametrize("block_size", [1 << 31, 10**30, 10**4000])
def test_a_block_size_that_nobody_trained_is_refused_in_one_short_line(block_size: int) -> None:
    with pytest.raises(BadInput, match="block_size") as refused:
        trained_draft_tokens(Checkpoint("drafter", {"block_size": block_size}), Method.DFLASH)

    assert len(refused.value.what) < 300


@pytest.mark.parametrize("layers", [1 << 31, 1 << 63, 10**30])
@pytest.mark.parametrize("more", [{}, {"use_swa": True}, {"speculators_model_type": "dflash"}, {"is_causal": True}])
def test_a_number_of_layers_costs_no_memory(layers: int, more: dict[str, Any]) -> None:
    facts = drafter_facts(Checkpoint("drafter", {"num_hidden_layers": layers, **more}), Method.DFLASH, 7)

    assert facts.full_layers + facts.sliding_layers in (0, layers)


@pytest.mark.parametrize(
    ("config", "full", "sliding", "causal", "non_causal"),
    [
        ({"num_hidden_layers": 3}, 3, 0, False, True),
        ({"num_hidden_layers": 3, "use_swa": True}, 0, 3, False, True),
        ({"num_hidden_layers": 2, "layer_types": [SLIDING, "full_attention"]}, 1, 1, True, True),
        ({"num_hidden_layers": 2, "layer_types": [SLIDING, "full_attention"], "use_swa": True}, 1, 1, True, True),
        ({"num_hidden_layers": 2, "layer_types": [SLIDING]}, 2, 0, True, False),
        ({"num_hidden_layers": 2, "is_causal": True}, 2, 0, True, False),
        ({}, 0, 0, False, True),
    ],
)
def test_layers_are_counted_by_their_kind(
    config: dict[str, Any], full: int, sliding: int, causal: bool, non_causal: bool
) -> None:
    facts = drafter_facts(Checkpoint("drafter", config), Method.DFLASH, 7)

    assert (facts.full_layers, facts.sliding_layers) == (full, sliding)
    assert (facts.causal, facts.non_causal) == (causal, non_causal)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "7", None, [], 1 << 48, 10**400])
def test_what_is_no_size_is_none(value: object) -> None:
    assert positive_int(value) is None
