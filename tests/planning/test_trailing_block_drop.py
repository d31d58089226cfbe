"""The rule for the trailing block, beside what vLLM's own cache managers find."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.trailing_block_rule import TrailingBlock, dropping_groups, trailing_block
from dspark_cli.sources.vllm_install import find_vllm
from tests.paths import FIXTURES

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Group:
    kind: str
    block: int
    flag: bool = False


@dataclass(frozen=True)
class Case:
    groups: tuple[Group, ...]
    prefix: int
    suffix: int = 256
    ranks: int = 1
    drop: bool = True


FULL, STATE, WINDOW = "full", "state", "window"
UNIT = 96
HYBRID = (Group(FULL, UNIT), Group(STATE, UNIT))

ONE_GROUP = (
    Case((Group(FULL, 16),), 4096),
    Case((Group(FULL, 16),), 4101),
    Case((Group(FULL, 1536),), 12288),
    Case((Group(WINDOW, 32),), 4096),
    Case((Group(FULL, 16),), 4096, ranks=4),
)
NO_GROUP_FLAGGED = (
    Case((Group(FULL, 16), Group(WINDOW, 16)), 4096),
    Case((Group(FULL, 32), Group(WINDOW, 16)), 4096 + 16),
    Case((Group(FULL, 16), Group(WINDOW, 32)), 4096 + 24),
    Case(HYBRID, 4 * UNIT + 90),
    Case((*HYBRID, Group(WINDOW, 16)), 4 * UNIT + 40),
)
DRAFT_GROUP_FLAGGED = tuple(Case((*HYBRID, Group(WINDOW, 16, flag=True)), 6 * UNIT + beyond) for beyond in range(UNIT))
FOURTH_SEED = Case((Group(FULL, 1536), Group(STATE, 1536)), 12_288, 256)
FINER_THAN_STATES = Case((Group(FULL, 512), Group(STATE, 1536)), 12_288, 256)
ALL = (*ONE_GROUP, *NO_GROUP_FLAGGED, *DRAFT_GROUP_FLAGGED, FOURTH_SEED, FINER_THAN_STATES)


@pytest.fixture(scope="module")
def hits() -> dict[Case, int]:
    """Of every case with and without the drop, from one process."""
    cases = [replace(case, drop=drop, groups=_flags_of(case, drop)) for case in ALL for drop in (True, False)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.planning.prefix_hits"],
        input=json.dumps([asdict(case) for case in cases]),
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, **find_vllm().added_environment()},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True))


def _flags_of(case: Case, drop: bool) -> tuple[Group, ...]:
    """vLLM flags no group where it drops no block."""
    return tuple(replace(group, flag=group.flag and drop) for group in case.groups)


def kept(case: Case) -> Case:
    return replace(case, drop=False, groups=_flags_of(case, drop=False))


def rule_for(case: Case) -> TrailingBlock:
    spans = [group.block * (case.ranks if group.kind == FULL else 1) for group in case.groups]
    return _rule(plan_of(case, unit=max(spans)))


def _rule(plan: CachePlan) -> TrailingBlock:
    rule = trailing_block(plan, dropping_groups(plan))
    assert rule is not None
    return rule


def plan_of(case: Case, unit: int | None) -> CachePlan:
    answer: dict[str, Any] = json.loads((FIXTURES / "plans" / "same-geometry.json").read_text())["plan"]
    recorded = CachePlan.from_answer(answer)
    groups = tuple(_planned(recorded.groups[0], group, case.ranks) for group in case.groups)
    policy = replace(recorded.policy, hit_alignment_tokens=unit, decode_context_parallel=case.ranks)
    return replace(recorded, groups=groups, policy=policy)


def _planned(recorded: KVCacheGroup, group: Group, ranks: int) -> KVCacheGroup:
    return replace(
        recorded,
        block_tokens=group.block,
        draft_flag=group.flag,
        sharded=ranks > 1 and group.kind == FULL,
        useful_tokens_per_sequence=None if group.kind == STATE else 4096,
    )


@pytest.mark.parametrize("case", [*ONE_GROUP, *NO_GROUP_FLAGGED, FOURTH_SEED])
def test_a_hit_loses_its_last_unit_where_every_group_drops_a_block(case: Case, hits: dict[Case, int]) -> None:
    rule = rule_for(case)
    whole = case.prefix // rule.unit * rule.unit

    assert hits[kept(case)] == whole
    assert hits[case] == whole - rule.unit
    assert rule.every_time


def test_with_the_draft_group_flagged_it_does_so_only_less_than_a_draft_block_beyond_one(hits: dict[Case, int]) -> None:
    whole = {case: case.prefix // UNIT * UNIT for case in DRAFT_GROUP_FLAGGED}

    assert [hits[kept(case)] for case in DRAFT_GROUP_FLAGGED] == list(whole.values())
    for case in DRAFT_GROUP_FLAGGED:
        assert hits[case] == whole[case] - (UNIT if case.prefix - whole[case] < rule_for(case).dropped else 0)


def test_the_fourth_seeds_hits_of_10752_with_and_12288_tokens_without_the_drop(hits: dict[Case, int]) -> None:
    assert (hits[FOURTH_SEED], hits[kept(FOURTH_SEED)]) == (10_752, 12_288)
    assert rule_for(FOURTH_SEED) == TrailingBlock(unit=1536, dropped=1536, at_most=1536)


def test_a_flagged_draft_group_of_small_blocks_loses_a_small_block_on_average(hits: dict[Case, int]) -> None:
    lost = [hits[kept(case)] - hits[case] for case in DRAFT_GROUP_FLAGGED]

    assert sum(lost) / len(lost) == rule_for(DRAFT_GROUP_FLAGGED[0]).on_average == 16
    assert max(lost) == UNIT


def test_states_kept_at_fewer_places_than_hits_can_end_at_cost_more_than_a_unit(hits: dict[Case, int]) -> None:
    rule = _rule(plan_of(FINER_THAN_STATES, unit=512))

    lost = hits[kept(FINER_THAN_STATES)] - hits[FINER_THAN_STATES]

    assert rule.unit < lost <= rule.at_most == 1536


def test_a_single_groups_unit_follows_from_its_block_where_vllm_does_not_say() -> None:
    sharded = ONE_GROUP[-1]

    assert trailing_block(plan_of(sharded, unit=None), []) == TrailingBlock(unit=64, dropped=0, at_most=64)
    assert trailing_block(plan_of(FOURTH_SEED, unit=None), []) is None
