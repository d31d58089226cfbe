"""Findings over recorded plans: each fires where it should, and not in the nearest plan where it should not.

Plans come from vLLM's own planner (tests/fixtures/plans/record.py). Where no release that runs here makes the plan in
question, the nearest recorded one is taken and the fields that the test names are changed.
"""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.check import CHECKS, CacheEvidence, check_cache
from dspark_cli.findings.finding import Finding, NotChecked, Severity
from tests.paths import FIXTURES

PLANS = FIXTURES / "plans"
ALONE = {"context-parallel": "context-parallel-alone", "hybrid": "hybrid-alone", "second-seed": "second-seed-alone"}
"""The target alone, by how the plan's name starts; `target-alone` for the others."""

FIRES = [
    ("block-not-scaled", "odd-narrow-sliding", Severity.WARNING),
    ("dcp-hybrid-manager-off", "context-parallel-manager-off", Severity.WARNING),
    ("dcp-pipeline-stages", "context-parallel-two-stages", Severity.WARNING),
    ("draft-groups-unflagged", "context-parallel", Severity.INFO),
    ("draft-page-largest", "odd-wide-sliding", Severity.WARNING),
    ("draft-page-largest", "wide-sliding", Severity.INFO),
    ("drafter-shares-groups", "same-geometry", Severity.INFO),
    ("drafter-splits-groups", "sliding", Severity.INFO),
    ("drafter-splits-groups", "second-seed", Severity.INFO),
    ("drafter-trained-shorter", "short-drafter", Severity.WARNING),
    ("group-explosion", "one-sliding-one-full", Severity.WARNING),
    ("group-padding", "odd-narrow-sliding-packed", Severity.WARNING),
    ("kv-heads-copied", "four-ranks", Severity.WARNING),
    ("kv-heads-copied", "context-parallel", Severity.INFO),
    ("no-room-for-one-sequence", "no-room", Severity.ERROR),
    ("page-padding", "odd-narrow-sliding", Severity.WARNING),
    ("page-padding", "odd-wide-sliding", Severity.WARNING),
    ("states-for-drafts", "hybrid", Severity.WARNING),
    ("trailing-block-drop", "same-geometry", Severity.INFO),
    ("trailing-block-drop", "second-seed", Severity.WARNING),
    ("window-blocks", "sliding", Severity.WARNING),
    ("window-kept-whole", "manager-off", Severity.WARNING),
    ("window-kept-whole", "latent-wide-sliding", Severity.WARNING),
]
NEAR_MISSES = [
    ("block-not-scaled", "odd-by-little-sliding", "the page is padded, and holds no second block"),
    ("block-not-scaled", "wide-sliding", "the target's block was scaled"),
    ("dcp-backend", "context-parallel", "FlashAttention asks its own group"),
    ("dcp-draft-sharded", "context-parallel", "vLLM replicates the draft since 0.31"),
    ("dcp-hybrid-manager-off", "context-parallel", "the manager is on"),
    ("dcp-hybrid-manager-off", "manager-off", "there is no context parallelism"),
    ("dcp-pipeline-stages", "context-parallel", "one stage"),
    ("dcp-runner-v1", "context-parallel", "V2 replicates the draft"),
    ("dcp-sleep", "context-parallel", "the server cannot sleep"),
    ("draft-block-below-aligned", "second-seed", "the drafter has the target's aligned block"),
    ("draft-block-below-aligned", "wide-sliding", "the draft block is smaller, and fills its page"),
    ("draft-groups-unflagged", "same-geometry", "one group has no other to spare"),
    ("draft-groups-unflagged", "hybrid-sliding", "the drafter's block is as long as any, so a mark saves nothing"),
    ("draft-page-largest", "odd-by-little-sliding", "the target's page is larger"),
    ("draft-page-largest", "second-seed", "the pages are equal"),
    ("draft-page-largest", "latent-wide-sliding", "the draft page is larger, and the target does not pay for it"),
    ("drafter-shares-groups", "sliding", "the drafter has a group of its own"),
    ("drafter-splits-groups", "same-geometry", "the target keeps its one group"),
    ("drafter-splits-groups", "one-sliding-one-full", "that is an explosion"),
    ("drafter-trained-shorter", "same-geometry", "the drafter was made for longer sequences"),
    ("group-explosion", "sliding", "a few groups more"),
    ("group-explosion", "second-seed", "five times the groups, as many as layers in each"),
    ("group-explosion", "hybrid", "the target alone has as many"),
    ("group-padding", "hybrid", "7% are padding"),
    ("kv-heads-copied", "context-parallel-alone", "context parallelism shards what would be copies"),
    ("no-room-for-one-sequence", "same-geometry", "it fits"),
    ("page-padding", "odd-by-little-sliding", "4% are padding"),
    ("page-padding", "hybrid-sliding", "3% are padding, which aligns states"),
    ("draft-layers-split", "one-sliding-one-full", "V2 takes draft layers from any group"),
    ("states-for-drafts", "hybrid-alone", "nothing is drafted"),
    ("states-for-drafts", "same-geometry", "there are no states"),
    ("trailing-block-drop", "block-drop-off", "nothing is dropped"),
    ("trailing-block-drop", "prefix-caching-off", "there are no prefix hits"),
    ("trailing-block-drop", "target-alone", "there is no drafter"),
    ("window-blocks", "long-sliding", "6% of a long sequence"),
    ("window-kept-whole", "sliding", "the window has a group that keeps it"),
]
CHANGED_IN_A_TEST = {
    "dcp-backend",
    "dcp-cascade",
    "dcp-draft-sharded",
    "dcp-runner-v1",
    "dcp-sleep",
    "draft-block-below-aligned",
    "draft-layers-split",
}


def recorded(name: str) -> CachePlan:
    answer: dict[str, Any] = json.loads((PLANS / f"{name}.json").read_text())["plan"]
    return CachePlan.from_answer(answer)


def evidence(name: str, release: str | None = "0.32") -> CacheEvidence:
    alone = next((of for start, of in ALONE.items() if name.startswith(start)), "target-alone")
    return CacheEvidence(recorded(name), None if name.endswith("alone") else recorded(alone), release)


def changed(name: str, release: str | None = "0.32", **fields: Any) -> CacheEvidence:
    """The evidence of a recorded plan with other fields in the plan."""
    original = evidence(name, release)
    return replace(original, plan=replace(original.plan, **fields))


def with_policy(name: str, **fields: Any) -> CacheEvidence:
    return changed(name, policy=replace(recorded(name).policy, **fields))


def with_draft_groups(name: str, **fields: Any) -> CacheEvidence:
    def draft_or_same(group: KVCacheGroup) -> KVCacheGroup:
        return replace(group, **fields) if group.role == "draft" else group

    return changed(name, groups=tuple(map(draft_or_same, recorded(name).groups)))


def with_draft_backend(name: str, backend: str) -> CacheEvidence:
    kinds = recorded(name).layer_kinds
    return changed(
        name,
        layer_kinds=tuple(replace(kind, backend=backend) if kind.role == "draft" else kind for kind in kinds),
    )


def found(finding_id: str, given: CacheEvidence) -> list[Finding]:
    return [finding for finding in check_cache(given).findings if finding.id == finding_id]


def the_one(finding_id: str, given: CacheEvidence) -> Finding:
    findings = found(finding_id, given)
    assert len(findings) == 1
    return findings[0]


def not_checked(given: CacheEvidence) -> set[str]:
    return {check.id for check in check_cache(given).not_checked}


@pytest.mark.parametrize(("finding_id", "name", "severity"), FIRES)
def test_a_finding_fires(finding_id: str, name: str, severity: Severity) -> None:
    finding = the_one(finding_id, evidence(name))

    assert finding.severity == severity


@pytest.mark.parametrize(("finding_id", "name", "why"), NEAR_MISSES)
def test_a_near_miss_does_not_fire(finding_id: str, name: str, why: str) -> None:
    assert found(finding_id, evidence(name)) == [], why


def test_every_check_has_a_plan_that_fires_and_a_near_miss() -> None:
    ids = {sys.modules[check.__module__].__dict__["ID"] for check in CHECKS}

    assert {finding_id for finding_id, *_ in FIRES} | CHANGED_IN_A_TEST == ids
    assert {finding_id for finding_id, *_ in NEAR_MISSES} | {"dcp-cascade"} == ids


@pytest.mark.parametrize("name", sorted(path.stem for path in PLANS.glob("*.json")))
def test_a_complete_plan_leaves_nothing_unchecked_and_every_finding_says_what_to_do(name: str) -> None:
    given = evidence(name)
    checked = check_cache(given)

    assert checked.not_checked == ()
    for finding in checked.findings:
        assert finding.advice
        assert finding.source
        assert finding.evidence
        assert json.loads(json.dumps(asdict(finding)))["severity"] in ("info", "warning", "error")
    order = [(finding.severity.rank, finding.evidence.get("cost_bytes") or 0) for finding in checked.findings]
    assert order == sorted(order, reverse=True)


def test_draft_blocks_of_16_beside_2304_where_only_the_draft_groups_geometry_is_changed() -> None:
    """No release that runs here leaves them so small; its fork did."""
    small = {"block_tokens": 16, "page_bytes": 65_536, "useful_block_bytes": 5 * 65_536, "blocks_per_sequence": 641}

    given = with_draft_groups("second-seed", **small)
    finding = the_one("draft-block-below-aligned", given)

    assert finding.evidence["draft_block_tokens"] == 16
    assert finding.evidence["aligned_block_tokens"] == 2304
    assert finding.evidence["times"] == 144
    assert finding.evidence["draft_blocks_per_sequence"] == 641
    assert finding.evidence["blocks_per_sequence"] == 5 * 228 + 641
    assert "16 tokens" in finding.what
    assert "2,304" in finding.what
    assert found("block-not-scaled", given) == [], "said once"


def test_a_packed_draft_block_that_is_smaller_is_below_aligned_once_the_pools_block_has_room_for_two() -> None:
    """odd-narrow-sliding-packed with half the draft block: 8 of 16 tokens in a block that has room for more."""
    half = {"block_tokens": 8, "useful_block_bytes": 3072, "block_bytes": 3072}

    assert found("draft-block-below-aligned", with_draft_groups("odd-narrow-sliding-packed", **half))
    assert not found(
        "draft-block-below-aligned", with_draft_groups("wide-sliding-packed", block_tokens=8, useful_block_bytes=32_768)
    )


def test_draft_layers_in_two_groups_where_only_the_model_runner_is_changed() -> None:
    """The small target cannot be planned with such a drafter on V1, which refuses mixed layers at once."""
    finding = the_one("draft-layers-split", with_policy("one-sliding-one-full", model_runner="V1"))

    assert finding.severity == Severity.ERROR
    assert finding.evidence["draft_holding_groups"] == 2
    assert found("draft-layers-split", with_policy("same-geometry", model_runner="V1")) == []


def test_an_explosion_names_the_layers_that_set_the_width() -> None:
    finding = the_one("group-explosion", evidence("one-sliding-one-full"))

    assert finding.evidence["groups"] == 6
    assert finding.evidence["groups_alone"] == 1
    assert finding.evidence["minority"] == "draft sliding window 512"
    assert finding.evidence["minority_layers"] == 1


def test_layers_of_target_and_drafter_with_one_geometry_are_one_bucket() -> None:
    """Else the one full draft layer, which joins the target's four, would be a minority as small as the sliding one."""
    full = tuple(group for group in recorded("one-sliding-one-full").groups if group.window is None)

    finding = the_one("group-explosion", changed("one-sliding-one-full", groups=full))

    assert finding.evidence["minority_layers"] == 5


@pytest.mark.parametrize(
    ("backend", "severity"),
    [("FLASHMLA", Severity.ERROR), ("SOMETHING_NEW", Severity.WARNING), ("FLASHINFER", None), ("TRITON_ATTN", None)],
)
def test_a_replicated_drafts_backend_where_only_its_name_is_changed(backend: str, severity: Severity | None) -> None:
    findings = found("dcp-backend", with_draft_backend("context-parallel", backend))

    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_the_same_backend_without_context_parallelism_is_no_finding() -> None:
    assert found("dcp-backend", with_draft_backend("four-ranks", "FLASHMLA")) == []


@pytest.mark.parametrize(
    ("release", "severity", "words"),
    [
        ("0.28", Severity.ERROR, "drafts read other requests' KV"),
        ("0.29", Severity.WARNING, "acceptance falls"),
        ("0.30", Severity.WARNING, "acceptance falls"),
    ],
)
def test_a_draft_that_old_releases_shard_where_only_the_release_is_changed(
    release: str, severity: Severity, words: str
) -> None:
    finding = the_one("dcp-draft-sharded", evidence("context-parallel", release))

    assert finding.severity == severity
    assert words in finding.what
    assert "0.31" in finding.advice


def test_old_releases_shard_no_draft_without_context_parallelism_and_no_latent_one_wrongly() -> None:
    latent = tuple(replace(kind, kind="MLA attention") for kind in recorded("context-parallel").layer_kinds)

    assert found("dcp-draft-sharded", evidence("four-ranks", "0.28")) == []
    assert found("dcp-draft-sharded", changed("context-parallel", "0.28", layer_kinds=latent)) == []
    assert "dcp-draft-sharded" in not_checked(evidence("context-parallel", None))


def test_a_server_that_can_sleep_where_only_that_is_changed() -> None:
    """The stand-in platform has no sleep mode."""
    assert the_one("dcp-sleep", with_policy("context-parallel", sleep_mode=True)).severity == Severity.INFO
    assert found("dcp-sleep", with_policy("four-ranks", sleep_mode=True)) == []


def test_dflash_on_runner_v1_where_only_the_runner_is_changed() -> None:
    assert the_one("dcp-runner-v1", with_policy("context-parallel", model_runner="V1")).severity == Severity.WARNING
    assert found("dcp-runner-v1", with_policy("four-ranks", model_runner="V1")) == []
    assert found("dcp-runner-v1", with_policy("context-parallel", model_runner="V1", method="dspark")) == []


@pytest.mark.parametrize(("release", "unknown"), [(None, True), ("0.31", True), ("0.32", False), ("0.33", False)])
def test_cascade_attention_is_in_doubt_only_where_vllm_may_have_it(release: str | None, unknown: bool) -> None:
    assert ("dcp-cascade" in not_checked(evidence("context-parallel", release))) == unknown
    assert "dcp-cascade" not in not_checked(evidence("four-ranks", release))


def test_flagged_draft_groups_are_no_finding_where_only_the_flag_is_changed() -> None:
    """As vLLM 0.33 plans it."""
    assert found("draft-groups-unflagged", with_draft_groups("context-parallel", draft_flag=True)) == []
    assert the_one("draft-groups-unflagged", evidence("context-parallel")).fixed_since == "0.33"


def test_unflagged_groups_warn_where_flags_would_save_many_tokens_and_only_the_draft_block_is_changed() -> None:
    finding = the_one("draft-groups-unflagged", with_draft_groups("second-seed", block_tokens=16))

    assert finding.severity == Severity.WARNING
    assert finding.evidence["lost_tokens_on_average"] == 2304
    assert finding.evidence["lost_tokens_if_flagged"] == 16


def test_a_flagged_group_of_small_blocks_loses_a_unit_now_and_then() -> None:
    given = with_draft_groups("second-seed", draft_flag=True, block_tokens=16)

    finding = the_one("trailing-block-drop", given)

    assert finding.severity == Severity.INFO
    assert finding.evidence["unit_tokens"] == 2304
    assert finding.evidence["lost_tokens_on_average"] == 16
    assert "less than 16 tokens after a multiple of 2,304" in finding.what


@pytest.mark.parametrize(("release", "first_word"), [("0.29", "with"), ("0.30", "put"), (None, "put")])
def test_keeping_the_block_is_advised_where_the_release_can(release: str | None, first_word: str) -> None:
    assert the_one("trailing-block-drop", evidence("same-geometry", release)).advice.startswith(first_word)


def test_no_room_says_how_long_a_sequence_fits() -> None:
    finding = the_one("no-room-for-one-sequence", evidence("no-room"))

    assert finding.evidence["largest_length"] == 5440
    assert "--max-model-len 5440" in finding.advice


def test_no_room_for_any_sequence_where_only_the_largest_length_is_changed() -> None:
    finding = the_one("no-room-for-one-sequence", changed("no-room", largest_length=0))

    assert "not even a short one" in finding.what
    assert "--max-model-len" not in finding.advice


def test_a_window_as_long_as_a_sequence_is_rightly_kept_whole_where_only_the_length_is_changed() -> None:
    assert found("window-kept-whole", changed("manager-off", max_model_len=512)) == []


def test_beyond_a_window_are_the_tokens_in_flight() -> None:
    many, few = (the_one("window-blocks", evidence(name)) for name in ("sliding", "few-batched-tokens"))

    assert "of 2 layers of draft sliding window 512" in many.what
    assert many.evidence["tokens_beyond"] == 257 * 16 - 512
    assert few.evidence["tokens_beyond"] == 161 * 16 - 512
    assert "max-num-batched-tokens=2048" in many.advice


def test_copies_of_latent_kv_are_what_context_parallelism_takes_away() -> None:
    finding = the_one("kv-heads-copied", evidence("four-ranks"))

    assert finding.evidence["copies"] == 2
    assert finding.evidence["share"] == 0.5
    assert "decode-context-parallel-size=2" in finding.advice
    assert "tensor-parallel-size" not in finding.advice
    assert "replicated" in finding.advice


def test_copies_are_counted_in_the_groups_that_have_them() -> None:
    finding = the_one("kv-heads-copied", evidence("context-parallel"))

    assert "1 group of draft full attention on up to 2 ranks" in finding.what
    assert finding.evidence["copied_groups"] == 1
    assert finding.evidence["groups"] == 3


def test_a_latent_drafter_is_not_said_to_be_replicated_where_only_its_kind_is_changed() -> None:
    kinds = tuple(replace(kind, kind="MLA attention") for kind in recorded("four-ranks").layer_kinds)

    assert "replicated" not in the_one("kv-heads-copied", changed("four-ranks", layer_kinds=kinds)).advice


def test_the_window_named_is_the_one_with_most_bytes_and_not_with_most_tokens_beyond_it() -> None:
    """sliding with its target's groups given a window of 1,024, beside which the draft group keeps more tokens."""

    def windowed(group: KVCacheGroup) -> KVCacheGroup:
        if group.role == "draft":
            return replace(group, useful_block_bytes=group.useful_block_bytes // 8)
        return replace(group, window=1024, useful_tokens_per_sequence=1024, blocks_per_sequence=200)

    finding = the_one("window-blocks", changed("sliding", groups=tuple(map(windowed, recorded("sliding").groups))))

    assert finding.evidence["window_tokens"] == 1024
    assert finding.evidence["layers"] == 4
    assert "4 layers of target" in finding.what


def test_an_explosion_without_padding_costs_time_and_comes_last_where_only_pages_are_changed() -> None:
    """one-sliding-one-full with all blocks filled: its groups are narrow, and no byte is lost."""
    plan = recorded("one-sliding-one-full")
    block = plan.replica_bytes_per_block
    full = tuple(replace(group, useful_block_bytes=block, block_bytes=block) for group in plan.groups)

    given = changed("one-sliding-one-full", groups=full)
    finding = the_one("group-explosion", given)

    assert "not capacity" in finding.what
    assert "--what-if" not in finding.advice
    assert [one.id for one in check_cache(given).findings if one.severity == Severity.WARNING][-1] == "group-explosion"


def test_an_explosion_with_padding_says_that_the_width_is_no_option_where_only_the_bytes_used_are_changed() -> None:
    half = tuple(
        replace(group, useful_block_bytes=group.block_bytes // 2) for group in recorded("one-sliding-one-full").groups
    )

    finding = the_one("group-explosion", changed("one-sliding-one-full", groups=half))

    assert "not capacity" not in finding.what
    assert "--what-if group-width" in finding.advice
    assert "no option for the group width" in finding.advice


def test_a_shared_group_with_padding_beside_it_costs_more_than_its_own_bytes() -> None:
    """same-geometry in a pool whose blocks are a tenth larger; the target alone fills its own."""
    wider = recorded("same-geometry").pool_bytes_per_block * 11 // 10

    assert "nothing more" in the_one("drafter-shares-groups", evidence("same-geometry")).what
    finding = the_one("drafter-shares-groups", changed("same-geometry", pool_bytes_per_block=wider))
    assert "nothing more" not in finding.what
    assert "9.1% of its bytes" in finding.what


def test_no_room_says_why_capacity_can_be_more_than_the_length_that_fits() -> None:
    """hybrid-sliding with the sizes of a sequence that does not fit."""
    given = changed("hybrid-sliding", largest_length=1000, kv_tokens=2000)

    assert "2,000 KV tokens" in the_one("no-room-for-one-sequence", given).what
    assert "KV tokens" not in the_one("no-room-for-one-sequence", evidence("no-room")).what


EMPTY_GROUPS = {"useful_block_bytes": 0, "block_bytes": 0, "page_bytes": 0, "padded_page_bytes": 0}


@pytest.mark.parametrize("name", sorted(path.stem for path in PLANS.glob("*.json")))
@pytest.mark.parametrize("groups", [EMPTY_GROUPS, {"blocks_per_sequence": 0}, {"useful_block_bytes": 0}, {}])
@pytest.mark.parametrize(
    "plan",
    [
        {"blocks": 0, "kv_tokens": 0, "full_sequences": 0.0, "largest_length": 0},
        {"pool_bytes_per_block": 0, "stages": ()},
        {"layer_kinds": ()},
    ],
)
def test_odd_plans_are_judged_all_the_same(name: str, groups: dict[str, Any], plan: dict[str, Any]) -> None:
    odd = tuple(replace(group, **groups) for group in recorded(name).groups)

    given = changed(name, groups=odd, **plan)

    assert all(finding.what for finding in check_cache(given).findings)


def test_a_plan_without_groups_has_no_finding_about_bytes() -> None:
    given = changed("one-sliding-one-full", groups=())

    assert not [one for one in check_cache(given).findings if one.evidence.get("cost_bytes")]


@pytest.mark.parametrize("name", sorted(path.stem for path in PLANS.glob("*.json")))
def test_a_running_engine_is_not_told_to_compare_what_only_models_can(name: str) -> None:
    of_an_engine = replace(changed(name, layer_kinds=()), alone=None)

    for finding in check_cache(of_an_engine).findings:
        assert "compare: --what-if" not in finding.advice
        assert ("--what-if" in finding.advice) == ("inspect-cache --model" in finding.advice)


def test_what_a_running_engine_does_not_keep_is_not_checked() -> None:
    assert not_checked(changed("sliding", layer_kinds=())) == {"draft-page-largest"}
    assert not_checked(changed("context-parallel", layer_kinds=())) == {"draft-page-largest", "dcp-backend"}


def test_without_the_target_alone_groups_are_not_compared() -> None:
    given = replace(evidence("one-sliding-one-full"), alone=None)

    assert not_checked(given) == {"group-explosion", "drafter-splits-groups"}


def test_a_target_alone_needs_no_plan_to_compare_with() -> None:
    assert check_cache(evidence("target-alone")).findings == ()
    assert check_cache(evidence("target-alone")).not_checked == ()


@pytest.mark.parametrize(
    ("given", "finding_id"),
    [
        (changed("same-geometry", memory_bytes=None), "no-room-for-one-sequence"),
        (with_policy("same-geometry", drafter_trained_tokens=None), "drafter-trained-shorter"),
        (with_policy("sliding", hit_alignment_tokens=None), "trailing-block-drop"),
    ],
)
def test_missing_facts_are_said(given: CacheEvidence, finding_id: str) -> None:
    assert not_checked(given) == {finding_id}
    assert found(finding_id, given) == []
    assert all(isinstance(check, NotChecked) and check.why for check in check_cache(given).not_checked)


def test_severities_are_ordered() -> None:
    assert Severity.INFO < Severity.WARNING < Severity.ERROR
    assert max(Severity) == Severity.ERROR
    assert Severity.WARNING >= Severity.WARNING > Severity.INFO
    assert not Severity.WARNING <= Severity.INFO


def test_findings_import_nothing_that_prints_or_plans() -> None:
    program = "import sys, dspark_cli.findings.cache.check; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert not {"typer", "rich", "vllm", "torch", "pydantic"} & set(loaded)
