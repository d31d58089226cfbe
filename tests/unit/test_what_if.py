"""Changes that are planned beside a deployment."""

import json
from dataclasses import replace

import pytest

from dspark_cli.errors import BadInput
from dspark_cli.planning.deployment import Deployment
from dspark_cli.planning.what_if import what_if_scenarios
from dspark_cli.sources.cache_planner import GROUP_WIDTH, LAYOUT

DRAFTER = {"method": "dflash", "model": "drafter", "num_speculative_tokens": 7}
BASE = Deployment(("--model", "target", "--max-model-len", "4096"), DRAFTER)


def test_any_option_of_vllm_is_a_change_and_wins_over_the_one_before() -> None:
    (scenario,) = what_if_scenarios(BASE, ["max-model-len=8192"])

    assert scenario.vllm_args[2:6] == ("--max-model-len", "4096", "--max-model-len", "8192")
    assert scenario.exact_options == ("--max-model-len",)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("enable-prefix-caching=false", "--no-enable-prefix-caching"),
        ("no-enable-prefix-caching", "--no-enable-prefix-caching"),
        ("enable_prefix_caching=true", "--enable-prefix-caching"),
    ],
)
def test_a_switch_is_a_change_by_its_name_or_by_true_and_false(change: str, word: str) -> None:
    (scenario,) = what_if_scenarios(BASE.without_drafter(), [change])

    assert scenario.vllm_args[4] == word


def test_the_tools_own_names_mean_what_they_mean_elsewhere() -> None:
    tokens, memory = what_if_scenarios(BASE, ["tokens=4", "kv-memory=1024"])

    assert json.loads(tokens.vllm_args[-1])["num_speculative_tokens"] == 4
    assert memory.vllm_args[4:6] == ("--kv-cache-memory-bytes", "1024")


def test_changes_joined_by_commas_are_made_together() -> None:
    (scenario,) = what_if_scenarios(BASE, ["layout=BLNHC,block-size=32,no-drafter"])

    assert scenario.environment == (("VLLM_KV_CACHE_LAYOUT", "BLNHC"),)
    assert scenario.vllm_args[4:6] == ("--block-size", "32")
    assert scenario.drafter is False


def test_without_a_value_every_layout_and_width_is_meant() -> None:
    layouts, widths = what_if_scenarios(BASE, ["layout", "group-width"])

    assert (layouts.every, widths.every) == ((LAYOUT,), (GROUP_WIDTH,))


def test_a_key_of_the_drafter_keeps_its_type() -> None:
    scenarios = what_if_scenarios(BASE, ["draft.disable_eagle_block_drop=true", "draft.num_speculative_tokens=3"])

    first, second = (json.loads(scenario.vllm_args[-1]) for scenario in scenarios)
    assert first["disable_eagle_block_drop"] is True
    assert second["num_speculative_tokens"] == 3


def test_all_leaves_the_drafter_alone_where_there_is_none() -> None:
    with_drafter = {scenario.name for scenario in what_if_scenarios(BASE, ["all"])}
    without = {scenario.name for scenario in what_if_scenarios(replace(BASE, speculative_config=None), ["all"])}

    assert with_drafter - without == {"no-drafter", "draft.num_speculative_tokens=3"}


@pytest.mark.parametrize(
    "change",
    ["", "no-drafter=1", "group-width=0", "group-width=x", "a b=1", "gpu=b200", "speculative-config={}", "draft.x"],
)
def test_what_is_no_change_is_refused(change: str) -> None:
    with pytest.raises(BadInput, match="--what-if"):
        what_if_scenarios(BASE, [change])
