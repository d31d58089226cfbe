"""Draft acceptance by restored tokens, counted beside vLLM: in vLLM's own schedulers, and what is refused."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.draft_context.acceptance_by_restored import (
    EDGES,
    UNKNOWN_REQUEST,
    AcceptanceCounts,
    admitting,
    counts_as_known,
    counts_of,
    observing,
)
from dspark_cli.sources.vllm_install import find_vllm
from tests.live_server import offline_environment

POSITIONS = 7


@pytest.fixture(scope="module")
def stories() -> dict[str, Any]:
    """What vLLM's schedulers and the counts beside them say of the same steps."""
    environment = {**offline_environment(), **find_vllm().added_environment(), "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.counted_scheduler"], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sums(buckets: list[dict[str, Any]]) -> dict[str, int]:
    """Over all buckets, under vLLM's names."""
    total = {
        "num_drafts": sum(bucket["draft_steps"] for bucket in buckets),
        "num_draft_tokens": sum(bucket["draft_tokens"] for bucket in buckets),
        "num_accepted_tokens": sum(bucket["accepted_tokens"] for bucket in buckets),
    }
    for at in range(POSITIONS):
        total[f"position {at}"] = sum(bucket["accepted_per_position"][at] for bucket in buckets)
    return total


@pytest.mark.parametrize("scheduler", ["sync", "async", "runner V2"])
def test_the_buckets_add_up_to_what_vllm_counts(stories: dict[str, Any], scheduler: str) -> None:
    story = stories[scheduler]

    assert sums(story["ours"]["buckets"]) == story["vllm"]


@pytest.mark.parametrize("scheduler", ["sync", "async", "runner V2"])
def test_hits_and_resumptions_have_their_own_buckets(stories: dict[str, Any], scheduler: str) -> None:
    story = stories[scheduler]

    filled = {bucket["restored_from"] for bucket in story["ours"]["buckets"] if bucket["draft_steps"]}

    assert story["hits"] > 0
    assert story["admitted"] > story["requests"] + 1  # beside the id that comes twice, some were preempted
    assert filled == {0, 1, 256}


def test_the_two_runners_see_one_traffic_alike(stories: dict[str, Any]) -> None:
    assert stories["runner V2"]["ours"] == stories["async"]["ours"]


def test_nothing_is_kept_of_requests_that_left(stories: dict[str, Any]) -> None:
    assert {story["kept"] for name, story in stories.items() if name != "refusals"} == {0}


def test_where_vllm_counts_nothing_that_is_said(stories: dict[str, Any]) -> None:
    assert "--disable-log-stats" in stories["silent"]["ours"]["unsupported"]
    assert stories["silent"]["vllm"] == {}


def test_counting_twice_is_counting_once(stories: dict[str, Any]) -> None:
    assert stories["refusals"] == [None, None]


def output(
    new: dict[str, int] | None = None, resumed: dict[str, int] | None = None, finished: tuple[str, ...] = ()
) -> SimpleNamespace:
    """A SchedulerOutput as far as it is read; a running request stands beside those resumed."""
    cached = {"running": 77, **(resumed or {})}
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=one, num_computed_tokens=at) for one, at in (new or {}).items()],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached), num_computed_tokens=list(cached.values()), resumed_req_ids=set(resumed or {})
        ),
        finished_req_ids=set(finished),
    )


def steps_by_bucket(counts: AcceptanceCounts) -> dict[int, int]:
    buckets = counts.described()["buckets"]
    return {bucket["restored_from"]: bucket["draft_steps"] for bucket in buckets if bucket["draft_steps"]}


@pytest.mark.parametrize(
    ("restored", "bucket"),
    [(0, 0), (1, 1), (255, 1), (256, 256), (4095, 1024), (4096, 4096), (65535, 16384), (65536, 65536), (10**7, 65536)],
)
def test_a_bucket_holds_its_edge_and_not_the_next(restored: int, bucket: int) -> None:
    counts = AcceptanceCounts(POSITIONS)

    counts.admit(output(new={"a": restored}))
    counts.observe("a", 7, 2)

    assert steps_by_bucket(counts) == {bucket: 1}


def test_the_latest_resumption_decides() -> None:
    counts = AcceptanceCounts(POSITIONS)

    counts.admit(output(new={"a": 0}))
    counts.observe("a", 7, 2)
    counts.admit(output(resumed={"a": 512}))
    counts.observe("a", 7, 2)

    assert steps_by_bucket(counts) == {0: 1, 256: 1}


def test_a_finished_request_may_report_once_more() -> None:
    counts = AcceptanceCounts(POSITIONS)

    counts.admit(output(new={"a": 300}))
    counts.admit(output(finished=("a",)))
    counts.observe("a", 7, 0)
    counts.admit(output())

    assert steps_by_bucket(counts) == {256: 1}
    assert counts.requests == 0


def test_an_id_that_comes_back_as_it_leaves_is_the_new_request() -> None:
    counts = AcceptanceCounts(POSITIONS)

    counts.admit(output(new={"a": 300}))
    counts.admit(output(new={"a": 0}, finished=("a",)))
    counts.admit(output())
    counts.observe("a", 7, 0)

    assert steps_by_bucket(counts) == {0: 1}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, POSITIONS), st.integers(0, POSITIONS)), max_size=60))
def test_positions_add_up_as_vllms_do(steps: list[tuple[str, int, int]]) -> None:
    counts = AcceptanceCounts(POSITIONS)
    counts.admit(output(new={"a": 0, "b": 40, "c": 5000}))
    per_position = [0] * POSITIONS

    for request_id, drafted, accepted in steps:
        counts.observe(request_id, drafted, accepted)
        for at in range(accepted):
            per_position[at] += 1

    buckets = counts.described()["buckets"]
    assert [sum(bucket["accepted_per_position"][at] for bucket in buckets) for at in range(POSITIONS)] == per_position
    assert sum(bucket["accepted_tokens"] for bucket in buckets) == sum(per_position)
    assert sum(bucket["draft_tokens"] for bucket in buckets) == sum(drafted for _, drafted, _ in steps)
    assert [bucket["restored_from"] for bucket in buckets] == list(EDGES)


class Scheduler:
    """One whose admissions are given, and that counts every draft."""

    num_spec_tokens = POSITIONS

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        return self.outputs.pop(0)

    def make_spec_decoding_stats(
        self, stats: Any, drafted: int, accepted: int, invalid: dict[str, int] | None, request_id: str
    ) -> str:
        return "stats"


def test_an_admission_that_was_not_seen_makes_the_counts_doubtful_and_stops_nothing() -> None:
    scheduler = Scheduler()

    stats = observing(Scheduler.make_spec_decoding_stats)(scheduler, None, 7, 2, None, "unseen")

    assert stats == "stats"
    assert counts_of(scheduler).doubt == UNKNOWN_REQUEST


def test_an_output_that_cannot_be_read_stops_nothing() -> None:
    scheduler = Scheduler(SimpleNamespace(new_form=True))

    scheduled = admitting(Scheduler.schedule)(scheduler, throttle_prefills=True)

    assert scheduled.new_form
    assert "could not be read" in str(counts_of(scheduler).doubt)


def test_drafts_that_a_grammar_refused_are_not_counted_as_vllm_does_not() -> None:
    scheduler = Scheduler(output(new={"a": 0}))
    admitting(Scheduler.schedule)(scheduler)

    observing(Scheduler.make_spec_decoding_stats)(scheduler, None, 7, 1, {"a": 3, "b": 1}, "a")

    assert counts_of(scheduler).described()["buckets"][0]["draft_tokens"] == 4


@pytest.mark.parametrize("accepted_at_first", [0, 2])
def test_a_vllm_that_counts_in_another_way_is_not_counted(accepted_at_first: int) -> None:
    def counting(self: Any, stats: Any, drafted: int, accepted: int, invalid: Any, request_id: str) -> Any:
        if not self.log_stats or not drafted:
            return None
        return SimpleNamespace(
            num_drafts=3,
            num_draft_tokens=6,
            num_accepted_tokens=4,
            num_accepted_tokens_per_pos=[accepted_at_first, 1, 1],
        )

    assert counts_as_known(counting) is (accepted_at_first == 2)
