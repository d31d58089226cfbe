"""The second seed's figures that follow from geometry, from vLLM's own specifications and planner.

Its drafter has five sliding layers of 8 KV heads x 128 in bf16, in blocks of 2,304 tokens beside a target whose layers
fill five groups, and sequences of 512K tokens.
"""

import pytest

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.gpu_kind import gpu_kind
from dspark_cli.sources.cache_planner import StandIn, plan_scenarios
from dspark_cli.sources.vllm_install import find_vllm
from tests.fixtures.plans.record import scenarios

pytestmark = pytest.mark.timeout(300)
MIB = 1 << 20


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CachePlan:
    recorded = scenarios(tmp_path_factory.mktemp("models"))
    scenario = next(one for one in recorded if one.name == "second-seed")
    planned = plan_scenarios([scenario], find_vllm(), StandIn("cuda", gpu_kind("h100")))[0].plan
    assert planned is not None
    return planned


def test_the_draft_page_has_nine_mib(plan: CachePlan) -> None:
    draft = next(kind for kind in plan.layer_kinds if kind.role == "draft")

    assert (draft.layers, draft.block_tokens) == (5, 2304)
    assert draft.page_bytes == 9 * MIB


def test_five_target_groups_and_one_draft_group_of_five_layers(plan: CachePlan) -> None:
    assert [(group.role, len(group.layers)) for group in plan.groups] == [("target", 5)] * 5 + [("draft", 5)]
    assert {group.block_tokens for group in plan.groups} == {2304}


def test_a_pool_of_5592405_tokens_holds_10_67_sequences_of_512k(plan: CachePlan) -> None:
    assert plan.max_model_len == 524_288
    assert plan.kv_tokens == 5_592_405
    assert plan.full_sequences is not None
    assert f"{plan.full_sequences:.2f}" == "10.67"


def test_its_sharded_pool_of_16560269_tokens_holds_31_59_of_them(plan: CachePlan) -> None:
    assert f"{16_560_269 / plan.max_model_len:.2f}" == "31.59"
