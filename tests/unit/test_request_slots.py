"""Model runner V1 keeps a slot for each request with restored tokens, from its admission until it leaves."""

from collections.abc import Sequence
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.draft_context.runner_v1 import RequestSlots, RunnerContext

Requests = dict[str, int]
"""Computed tokens by request."""


def step(
    new: Requests | None = None,
    cached: Requests | None = None,
    resumed: Sequence[str] = (),
    finished: Sequence[str] = (),
    preempted: Sequence[str] = (),
) -> SimpleNamespace:
    """What is read of a SchedulerOutput. Resumed requests are among the cached ones."""
    cached = cached or {}
    return SimpleNamespace(
        finished_req_ids=set(finished),
        preempted_req_ids=set(preempted),
        scheduled_new_reqs=[
            SimpleNamespace(req_id=request, num_computed_tokens=tokens) for request, tokens in (new or {}).items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached), num_computed_tokens=list(cached.values()), resumed_req_ids=set(resumed)
        ),
    )


def runner_context(max_requests: int = 4) -> RunnerContext:
    return RunnerContext(SimpleNamespace(max_num_reqs=max_requests))


def drafted(kept: RunnerContext, request: str) -> int:
    """As in the first draft step with `request`: its restored tokens are judged in a slot of its own."""
    del kept.restored[request]
    return kept.slots.take(request)


def test_a_request_keeps_its_slot() -> None:
    slots = RequestSlots(3)

    taken = [slots.take(request) for request in ("a", "b", "a", "c")]

    assert taken[0] == taken[2]
    assert sorted({*taken}) == [0, 1, 2]
    assert [slots.of(request) for request in ("a", "b", "c")] == [taken[0], taken[1], taken[3]]


def test_who_has_no_slot_shares_the_one_that_is_nobodys() -> None:
    slots = RequestSlots(3)
    slots.take("a")
    slots.release("a")

    assert [slots.of(request) for request in ("a", "never seen")] == [slots.nobody, slots.nobody] == [3, 3]


def test_who_comes_when_all_slots_are_taken_gets_nobodys_until_one_is_free() -> None:
    slots = RequestSlots(1)
    slots.take("a")

    assert slots.take("b") == slots.nobody
    slots.release("a")
    assert slots.take("b") == 0


def test_releasing_what_has_no_slot_is_harmless() -> None:
    slots = RequestSlots(2)

    for request in ("never seen", "a", "a"):
        slots.release(request)

    assert {slots.take("b"), slots.take("c")} == {0, 1}


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh"))))
def test_slots_are_distinct_and_never_run_out(turns: list[tuple[bool, str]]) -> None:
    slots = RequestSlots(3)
    held: dict[str, int] = {}
    for takes, request in turns:
        if not takes:
            slots.release(request)
            held.pop(request, None)
        elif request in held or len(held) < 3:
            held[request] = slots.take(request)

        assert len(set(held.values())) == len(held)
        assert set(held.values()) <= {0, 1, 2}
        assert all(slots.of(each) == held.get(each, slots.nobody) for each in "abcdefgh")


def test_new_requests_come_with_what_was_restored() -> None:
    kept = runner_context()

    kept.follow(step(new={"a": 32, "b": 0, "c": 7}))

    assert kept.restored == {"a": 32, "c": 7}
    assert kept.slots.of("a") == kept.slots.nobody


def test_running_requests_are_admitted_once() -> None:
    kept = runner_context()
    kept.follow(step(new={"a": 32}))
    slot = drafted(kept, "a")

    kept.follow(step(cached={"a": 40}))

    assert kept.restored == {}
    assert kept.slots.of("a") == slot


def test_a_prompt_in_chunks_is_judged_when_its_drafting_begins() -> None:
    kept = runner_context()
    kept.follow(step(new={"a": 32}))

    kept.follow(step(cached={"a": 96}))

    assert kept.restored == {"a": 32}


def test_a_resumed_request_is_admitted_anew() -> None:
    kept = runner_context()
    kept.follow(step(new={"a": 32, "b": 16}))
    drafted(kept, "a")
    slot_of_b = drafted(kept, "b")

    kept.follow(step(cached={"b": 20, "a": 48}, resumed=["a"]))

    assert kept.restored == {"a": 48}
    assert kept.slots.of("a") == kept.slots.nobody
    assert kept.slots.of("b") == slot_of_b


def test_a_request_resumed_without_restored_tokens_has_nothing_hidden() -> None:
    kept = runner_context()
    kept.follow(step(new={"a": 32, "b": 32}))
    drafted(kept, "a")

    kept.follow(step(cached={"a": 0, "b": 0}, resumed=["a", "b"]))

    assert kept.restored == {}
    assert kept.slots.of("a") == kept.slots.nobody


def test_who_finished_leaves_nothing_behind() -> None:
    kept = runner_context(max_requests=1)
    kept.follow(step(new={"a": 32}))
    drafted(kept, "a")
    kept.follow(step(new={"b": 16}))

    kept.follow(step(finished=["a", "b", "never seen"]))

    assert kept.restored == {}
    assert kept.slots.of("a") == kept.slots.nobody
    assert kept.slots.take("c") == 0


def test_a_name_that_finished_and_came_back_in_one_step_is_the_new_request() -> None:
    kept = runner_context()
    kept.follow(step(new={"a": 32, "b": 32}))
    drafted(kept, "a")
    drafted(kept, "b")

    kept.follow(step(new={"a": 16, "b": 0}, finished=["a", "b"]))

    assert kept.restored == {"a": 16}
    assert kept.slots.of("a") == kept.slots.of("b") == kept.slots.nobody


def test_a_request_that_takes_the_place_of_a_preempted_one_gets_a_slot() -> None:
    kept = runner_context(max_requests=1)
    kept.follow(step(new={"a": 32}))
    drafted(kept, "a")

    kept.follow(step(new={"b": 16}, preempted=["a"]))

    assert drafted(kept, "b") == 0


def test_a_request_that_is_preempted_before_it_drafts_comes_back_as_it_is_resumed() -> None:
    kept = runner_context()
    kept.follow(step(new={"a": 32}))
    kept.follow(step(preempted=["a"]))
    waiting = dict(kept.restored)

    kept.follow(step(cached={"a": 48}, resumed=["a"]))

    assert waiting == {}
    assert kept.restored == {"a": 48}


def test_a_scheduler_that_says_nothing_of_preemption_is_understood() -> None:
    kept = runner_context()
    said_nothing = step(new={"a": 32})
    said_nothing.preempted_req_ids = None

    kept.follow(said_nothing)

    assert kept.restored == {"a": 32}
