"""Times of requests in results of other load tools."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import NotFit
from dspark_cli.sources.bench_results.request_times import read_request_times
from tests.paths import FIXTURES

RECORDED = {
    name: (FIXTURES / "bench" / f"request-times.{name}").read_bytes()
    for name in ("vllm-bench.json", "profile_export.jsonl", "benchmarks.json")
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_results_give_every_request(name: str) -> None:
    found = read_request_times(RECORDED[name], name)

    assert len(found.requests) >= 8
    assert not found.failed
    assert found.seconds > 0
    for request in found.requests:
        assert 0 < request.ttft_s <= request.seconds <= found.seconds
        assert request.output_tokens > 1
    assert len({request.prompt for request in found.requests}) == len(found.requests)


def test_a_request_that_failed_is_left_out_and_counted() -> None:
    result = json.loads(RECORDED["vllm-bench.json"])
    result["errors"][1] = "Server disconnected"

    found = read_request_times(json.dumps(result).encode(), "vllm-bench.json")

    assert len(found.requests) == len(result["ttfts"]) - 1
    assert found.failed == ("Server disconnected",)
    assert 1 not in {request.prompt for request in found.requests}


BY_END = (FIXTURES / "bench" / "request-times-by-end.benchmarks.json").read_bytes()
"""Two at a time: the second prompt's answer ended first."""


def test_guidellms_requests_are_told_by_their_prompts_and_not_by_when_they_ended() -> None:
    held = json.loads(BY_END)["benchmarks"][0]["requests"]["successful"]
    ended = [json.loads(each["request_args"])["body"]["prompt"] for each in held]
    sent = [ended[1], ended[0], *ended[2:]]

    found = read_request_times(BY_END, "benchmarks.json", sent)

    assert [request.prompt for request in found.requests] == [1, 0, *range(2, 12)]
    assert found.requests[0].seconds == round(held[0]["request_latency"], 6)


def test_prompts_alike_are_each_one_request_and_others_get_numbers_of_their_own() -> None:
    result = json.loads(BY_END)
    held = result["benchmarks"][0]["requests"]["successful"]
    held[3]["request_args"] = held[2]["request_args"]
    for number, told in ((4, None), (5, "{"), (6, "[]"), (7, '{"body": {"prompt": 1}}')):
        held[number]["request_args"] = told
    sent = [json.loads(held[2]["request_args"])["body"]["prompt"]] * 2

    found = read_request_times(json.dumps(result).encode(), "benchmarks.json", sent)

    numbers = [request.prompt for request in found.requests]
    assert numbers[2:4] == [0, 1]
    assert len(set(numbers)) == 12
    assert min([*numbers[:2], *numbers[4:]]) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"not json", b'{"ttfts": 1, "itls": 2}', b'{"benchmarks": 3}'])
def test_what_is_no_result_is_refused_or_holds_no_request(content: bytes) -> None:
    try:
        found = read_request_times(content, "file")
    except NotFit:
        return
    assert not found.requests


@given(
    st.sampled_from(sorted(RECORDED)),
    st.one_of(
        st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.lists(st.floats(), max_size=2), st.just(-1)
    ),
    st.data(),
)
def test_a_changed_figure_is_refused_or_read_as_a_time(name: str, value: Any, data: st.DataObject) -> None:
    documents = (
        [json.loads(line) for line in RECORDED[name].splitlines()]
        if name.endswith("jsonl")
        else [json.loads(RECORDED[name])]
    )
    places = list(_places(documents[0]))
    holder, key = places[data.draw(st.integers(0, len(places) - 1))]
    holder[key] = value
    content = "\n".join(json.dumps(document) for document in documents).encode()

    try:
        found = read_request_times(content, name)
    except NotFit:
        return
    assert all(0 <= request.ttft_s <= request.seconds for request in found.requests)


def _places(value: Any) -> Any:
    """Every container with a key of it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        yield value, key
        yield from _places(held)
