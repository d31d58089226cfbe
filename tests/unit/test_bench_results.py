"""Result files of benchmark tools against the counters of the server that they measured."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dspark_cli.errors import CannotSay, NotFit, ToolError
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.facts.traffic import Traffic
from dspark_cli.sources.acceptance_metrics import EngineCounts, read_counters
from dspark_cli.sources.bench_results import read_bench_result
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from tests.paths import FIXTURES

BENCH = FIXTURES / "bench"
SERVE, APPENDED = "vllm-serve.json", "vllm-serve-appended.json"
AIPERF_JSON, AIPERF_CSV, AIPERF_LINES = (f"aiperf.server_metrics_export.{kind}" for kind in ("json", "csv", "jsonl"))
AIPERF_RUN, AIPERF_REQUESTS = (f"aiperf-per-request.profile_export{kind}" for kind in ("_aiperf.json", ".jsonl"))
GUIDELLM = "guidellm.benchmarks.json"
ALL = (SERVE, APPENDED, AIPERF_JSON, AIPERF_CSV, AIPERF_LINES, AIPERF_RUN, AIPERF_REQUESTS, GUIDELLM)


def content_of(name: str) -> bytes:
    return (BENCH / name).read_bytes()


def reading(name: str) -> Recording:
    found = read_bench_result(content_of(name), name)
    assert found is not None
    return found


def served(name: str) -> EngineCounts:
    """What the server itself counted while the benchmark ran."""
    run = name.split(".")[0]
    before, after = (_page(f"{run}.{when}.metrics.txt") for when in ("before", "after"))
    return EngineCounts(after.counted - before.counted, after.traffic - before.traffic)


def _page(name: str) -> EngineCounts:
    page = Scrape(name, 0.0, parse_samples(content_of(name).decode(), name))
    return read_counters(page)["tiny", "0"]


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(content_of(name))
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize("name", ALL)
def test_a_result_holds_what_the_server_counted(name: str) -> None:
    found = reading(name)

    assert found.counted == served(name).counted
    assert (found.source, found.where, found.exact) == (SourceKind.BENCHMARK, (name,), True)
    assert found.traffic.finished_requests == served(name).traffic.finished_requests


@pytest.mark.parametrize("name", [AIPERF_JSON, AIPERF_CSV, AIPERF_LINES])
def test_server_metrics_hold_the_traffic_too(name: str) -> None:
    found = reading(name)

    assert found.traffic == served(name).traffic
    assert [(part.where[-16:], part.model, part.engine) for part in found.parts] == [
        (found.parts[0].where[-16:], "tiny", "0")
    ]
    assert "127.0.0.1:" in found.parts[0].where


def test_appended_runs_are_parts_of_their_own() -> None:
    found = reading(APPENDED)

    assert [part.where for part in found.parts] == [f"{APPENDED} run 1", f"{APPENDED} run 2"]
    assert [part.counted.drafts for part in found.parts] == [339, 337]
    assert [point.counted.drafts for point in found.trend] == [339, 337]
    assert found.seconds == pytest.approx(sum(point.seconds or math.nan for point in found.trend))


def test_scrapes_give_a_trend() -> None:
    found = reading(AIPERF_LINES)

    assert len(found.trend) == 19
    assert sum(point.counted.drafts for point in found.trend) == found.counted.drafts
    assert found.seconds == pytest.approx(19.07, abs=0.01)


def test_the_length_of_a_run_is_read() -> None:
    assert reading(SERVE).seconds == pytest.approx(6.5506, abs=1e-3)
    assert reading(AIPERF_JSON).seconds == pytest.approx(6.2361, abs=1e-3)
    assert reading(GUIDELLM).seconds == pytest.approx(7.4232, abs=1e-3)


def test_rounded_rates_are_said_to_be_so() -> None:
    def round_rates(result: dict[str, Any]) -> None:
        rates = result["spec_decode_per_position_acceptance_rates"]
        result["spec_decode_per_position_acceptance_rates"] = [round(rate, 3) for rate in rates]

    found = read_bench_result(changed(SERVE, round_rates), SERVE)

    assert found is not None
    assert found.counted == served(SERVE).counted
    assert not found.exact


def test_numbers_in_scientific_notation_are_numbers() -> None:
    content = content_of(SERVE).replace(b'"spec_decode_num_drafts": 333,', b'"spec_decode_num_drafts": 3.33E2,')

    found = read_bench_result(content, SERVE)

    assert found is not None
    assert found.counted == served(SERVE).counted


def test_a_run_without_figures_is_left_out_of_several() -> None:
    runs = content_of(APPENDED).split(b"\n")
    silent = {key: value for key, value in json.loads(runs[0]).items() if not key.startswith("spec_decode")}

    found = read_bench_result(b"\n".join([json.dumps(silent).encode(), runs[1]]), APPENDED)

    assert found is not None
    assert [part.where for part in found.parts] == [f"{APPENDED} run 2"]
    assert any("1 of 2 runs are left out" in note for note in found.notes)


def test_a_sweep_is_a_list_of_runs() -> None:
    runs = content_of(APPENDED).split(b"\n")

    found = read_bench_result(b"[" + b",".join(runs) + b"]", "summary.json")

    assert found is not None
    assert found.counted == served(APPENDED).counted


def without_speculation(result: dict[str, Any]) -> None:
    for key in [key for key in result if key.startswith("spec_decode")]:
        del result[key]


def without_answers(report: dict[str, Any]) -> None:
    for request in report["benchmarks"][0]["requests"]["successful"]:
        request["response_metrics"] = None


def without_counters(export: dict[str, Any]) -> None:
    export["metrics"] = {name: each for name, each in export["metrics"].items() if "spec_decode" not in name}


@pytest.mark.parametrize(
    ("content", "what", "next_step"),
    [
        (changed(SERVE, without_speculation), "no speculative figures", "--base-url"),
        (content_of("aiperf.profile_export_aiperf.json"), "client metrics only", "server_metrics_export.json"),
        (content_of("aiperf.profile_export.jsonl"), "client metrics only", "server_metrics_export.json"),
        (changed(AIPERF_JSON, without_counters), "no speculative counters", "serve MODEL --draft"),
        (changed(GUIDELLM, without_answers), "client metrics only", "--per-request-spec-decode-metrics summary"),
        (b'a,"{""guidellm_version"": 1}",c\n', "client metrics only", "benchmarks.json"),
        (b"PAR1...\x00endpoint_url\x00...PAR1", "Parquet files are not read", "server_metrics_export.json"),
    ],
    ids=["vllm", "aiperf run", "aiperf requests", "aiperf server", "guidellm", "guidellm CSV", "aiperf Parquet"],
)
def test_a_result_without_speculative_figures_is_named(content: bytes, what: str, next_step: str) -> None:
    with pytest.raises(CannotSay, match=what) as refused:
        read_bench_result(content, "file")
    assert next_step in refused.value.next_step


@pytest.mark.parametrize("name", ALL)
def test_a_result_that_is_cut_short_is_named(name: str) -> None:
    content = content_of(name)

    with pytest.raises(NotFit, match="cut short"):
        read_bench_result(content[: len(content) * 2 // 3], name)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"num_drafts": 0.5}, "spec_decode_num_drafts is 0.5, not a count"),
        ({"num_drafts": math.nan}, "spec_decode_num_drafts is nan, not a count"),
        ({"num_drafts": -3}, "num_drafts is below zero, so the server was restarted"),
        ({"num_drafts": 300}, "per-position|acceptance_length|accepted by position"),
        ({"draft_tokens": None}, "spec_decode_draft_tokens is None"),
        ({"accepted_tokens": 40}, "41 tokens are accepted by position, 40 in all"),
        ({"accepted_tokens": 1e4, "per_position_acceptance_rates": []}, "more tokens are accepted than drafted"),
        ({"per_position_acceptance_rates": [0.0, 41 / 333]}, "more is accepted at a position"),
        ({"per_position_acceptance_rates": [1.5]}, "acceptance rate by position is 1.5"),
        ({"per_position_acceptance_rates": "x"}, "per-position acceptance rates are 'x'"),
        ({"acceptance_rate": 30.0}, "acceptance_rate is 30.0, but its counts give 1.759"),
        ({"acceptance_length": 10**400}, "acceptance_length is"),
    ],
)
def test_figures_that_contradict_each_other_are_named(changes: dict[str, Any], what: str) -> None:
    changes = {f"spec_decode_{name}": value for name, value in changes.items()}

    with pytest.raises(NotFit, match=what):
        read_bench_result(changed(SERVE, lambda result: result.update(changes)), SERVE)


def test_a_histogram_that_is_not_that_of_the_run_is_named() -> None:
    def change(run: dict[str, Any]) -> None:
        run["pooled_spec_decode_acceptance_histogram"]["0"] += 1

    with pytest.raises(NotFit, match="total_spec_decode_steps is not that of its acceptance histogram"):
        read_bench_result(changed(AIPERF_RUN, change), AIPERF_RUN)


def test_requests_that_were_not_kept_are_noted() -> None:
    def keep_half(report: dict[str, Any]) -> None:
        del report["benchmarks"][0]["requests"]["successful"][6:]

    found = read_bench_result(changed(GUIDELLM, keep_half), GUIDELLM)

    assert found is not None
    assert found.traffic.finished_requests == 6
    assert found.notes == ("6 requests are left out: they were not kept, or nothing is said of their drafts",)


def test_a_password_in_an_endpoint_is_not_shown() -> None:
    content = content_of(AIPERF_JSON).replace(b"http://127.0.0.1", b"http://user:SECRET@127.0.0.1")

    found = read_bench_result(content, AIPERF_JSON)

    assert found is not None
    assert "SECRET" not in repr(found)


def test_a_restart_between_scrapes_is_noticed() -> None:
    lines = content_of(AIPERF_LINES).splitlines()
    later = [json.loads(line) for line in lines[:2]]
    for scrape in later:
        scrape["timestamp_ns"] += 10**12

    found = read_bench_result(b"\n".join([*lines, *(json.dumps(each).encode() for each in later)]), AIPERF_LINES)

    assert found is not None
    assert found.parts[0].restarted
    assert found.counted.drafts == 234 + 1009


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[{}]",
        b"plain text\n",
        b'{"a": 1}\n{"b": 2}',
        b"a,b\n1,2\n",
        b"\x00\xff",
        b"PAR1xPAR1",
    ],
    ids=ascii,
)
def test_what_is_no_benchmark_result_is_left_to_others(content: bytes) -> None:
    assert read_bench_result(content, "file") is None


def check(content: bytes) -> None:
    found = None
    with suppress(ToolError):
        found = read_bench_result(content, "file")
    if found is not None:
        counts = [(each.counted, each.traffic) for each in (*found.parts, *found.since_start)]
        for counted, traffic in [*counts, *((point.counted, point.traffic) for point in found.trend)]:
            assert counted.implausible() is None
            assert not traffic.went_back


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    check(content)


@given(st.sampled_from(ALL), st.floats(0, 1), st.integers(0, 40), st.binary(max_size=40))
def test_a_damaged_result_is_read_or_refused(name: str, place: float, length: int, patch: bytes) -> None:
    content = content_of(name)
    at = round(place * len(content))
    check(content[:at] + patch + content[at + length :])


ODD = st.sampled_from(
    [None, True, -1, 0, 1, 0.5, 1e308, math.nan, math.inf, 10**400, "", "x", "7", [], [1], {}, {"0": 1}]
)
JSON_RESULTS = (SERVE, AIPERF_JSON, AIPERF_RUN, GUIDELLM)


@given(st.sampled_from(JSON_RESULTS), st.integers(0, 10**6), ODD)
@example(SERVE, 0, None)
def test_any_value_may_be_odd(name: str, which: int, odd: object) -> None:
    document = json.loads(content_of(name))
    places = list(_places(document))
    holder, key = places[which % len(places)]
    holder[key] = odd
    check(json.dumps(document).encode())


def _places(value: Any) -> Any:
    """Every place of a document, as the object or list that holds it and the key there."""
    for key, held in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(held, dict | list):
            yield from _places(held)


def test_the_pages_beside_the_results_are_of_one_server() -> None:
    assert served(SERVE).counted == DraftCounters(333, 2331, 41, (34, 2, 1, 1, 1, 1, 1))
    assert served(SERVE).traffic == Traffic(773, 384, 773, 0, 0, 0, 0, 12)
