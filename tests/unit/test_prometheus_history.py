"""Ranges of counters from Prometheus servers: real answers, restarts, gaps, and servers that misbehave."""

import copy
import http.server
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay, NotFit, ToolError
from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.sources.acceptance_metrics import read_counters
from dspark_cli.sources.bounded_get import LARGEST_BODY
from dspark_cli.sources.prometheus_history import parse_duration, read_prometheus
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from tests.local_server import Respond, server_that
from tests.paths import FIXTURES

RECORDED = FIXTURES / "prometheus"
SERVERS = ("prometheus", "victoria-metrics")

T0 = 1_800_000_000.0
DRAFTS = "vllm:spec_decode_num_drafts_total"
FIRST_ENGINE = {"instance": "vllm-a:8000", "job": "vllm", "model_name": "tiny", "engine": "0"}


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.json").read_bytes()


def sending(body: bytes, status: int = 200, **headers: str) -> Respond:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            request.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                request.send_header(name.replace("_", "-"), value)
            request.end_headers()
            request.wfile.write(body)

    return respond


class Replay:
    """One server for all that is read here: starting one takes half a second."""

    url = ""
    body = b""
    status = 200


@pytest.fixture(autouse=True, scope="module")
def _replaying() -> Iterator[None]:
    with server_that(lambda request: sending(Replay.body, Replay.status)(request)) as Replay.url:
        yield


def read(body: bytes, status: int = 200) -> Recording:
    Replay.body, Replay.status = body, status
    return read_prometheus(Replay.url, 3600, 15, None, timeout_s=10)


def matrix(series: Iterable[Mapping[str, Any]], **more: object) -> bytes:
    data = {"resultType": "matrix", "result": list(series)}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def engine(
    drafts: Mapping[float, int | str],
    labels: Mapping[str, str] = FIRST_ENGINE,
    born: Mapping[float, float] | None = None,
    positions: int = 2,
) -> list[dict[str, Any]]:
    """Series of an engine of two draft positions, of which each draft accepts the first and every second both.

    `drafts` is the number of drafts by seconds after T0.
    """

    def series(name: str, share: float, **more: str) -> dict[str, Any]:
        values = [[T0 + at, n if isinstance(n, str) else str(int(n * share))] for at, n in drafts.items()]
        return {"metric": {"__name__": name, **labels, **more}, "values": values}

    found = [
        series(DRAFTS, 1),
        series("vllm:spec_decode_num_draft_tokens_total", 2),
        series("vllm:spec_decode_num_accepted_tokens_total", 1.5),
        series("vllm:generation_tokens_total", 2.5),
        *(
            series("vllm:spec_decode_num_accepted_tokens_per_pos_total", (1, 0.5, 0)[at], position=str(at))
            for at in range(positions)
        ),
    ]
    if born is not None:
        made = [[T0 + at, repr(T0 + when)] for at, when in born.items()]
        found.append({"metric": {"__name__": "vllm:spec_decode_num_drafts_created", **labels}, "values": made})
    return found


def moved(series: Iterable[dict[str, Any]], by_s: float) -> list[dict[str, Any]]:
    """The same at another time, births included."""
    found = copy.deepcopy(list(series))
    for each in found:
        born = each["metric"]["__name__"].endswith("_created")
        each["values"] = [[at + by_s, repr(float(value) + by_s) if born else value] for at, value in each["values"]]
    return found


def counted(drafts: int) -> DraftCounters:
    return DraftCounters(drafts, 2 * drafts, drafts * 3 // 2, (drafts, drafts // 2))


def test_a_real_prometheus_is_read_over_a_restart() -> None:
    found = read(recorded("prometheus-range"))

    page = (FIXTURES / "bench" / "aiperf.after.metrics.txt").read_text()
    first_life = read_counters(Scrape("", 0.0, parse_samples(page, "")))["tiny", "0"]
    [part], [now] = found.parts, found.since_start
    assert (part.where, part.model, part.engine, part.restarted) == ("vllm-a:8000", "tiny", "0", True)
    assert now.counted.drafts == 680
    assert part.counted == first_life.counted + now.counted
    assert part.traffic == first_life.traffic + now.traffic
    assert sum((point.counted for point in found.trend), NOTHING) == part.counted
    assert (found.source, found.exact) == (SourceKind.PROMETHEUS, True)
    assert any("was restarted once" in note for note in found.notes)


@pytest.mark.parametrize(
    ("ago_s", "drafts"),
    [(0, 1243 + 963), (86400, 1243 - 1009 + 963)],
    ids=["born in the range, scraped later", "born before the range"],
)
def test_a_real_victoria_metrics_is_read(ago_s: float, drafts: int) -> None:
    answer = json.loads(recorded("victoria-metrics-range"))
    series = answer["data"]["result"]

    found = read(matrix(moved(series, time.time() - ago_s - series[0]["values"][-1][0])))

    [part] = found.parts
    assert part.restarted
    assert part.counted.drafts == drafts


@pytest.mark.parametrize("server", SERVERS)
def test_what_a_real_server_refuses_is_named(server: str) -> None:
    status = 400 if server == "prometheus" else 422

    with pytest.raises(NotFit, match="refuses the query") as refused:
        read(recorded(f"{server}-too-many-points"), status)
    assert "a larger --step" in refused.value.next_step

    with pytest.raises(NotFit, match="refuses the query") as refused:
        read(recorded(f"{server}-bad-query"), status)
    assert "log" in refused.value.next_step


@pytest.mark.parametrize("server", SERVERS)
def test_a_range_without_a_vllm_is_named(server: str) -> None:
    with pytest.raises(NotFit, match="no vLLM with speculative decoding in this range"):
        read(recorded(f"{server}-no-series"))


def test_another_models_name_is_told() -> None:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        models = "label/model_name" in request.path
        sending(recorded("prometheus-models" if models else "prometheus-no-series"))(request)

    with server_that(respond) as url, pytest.raises(NotFit, match="with this model name") as refused:
        read_prometheus(url, 60, 15, "large", 10)
    assert "'tiny'" in refused.value.next_step


def test_a_vllm_that_does_not_speculate_is_named() -> None:
    series = [each for each in engine({0: 1, 15: 2}) if "spec_decode" not in each["metric"]["__name__"]]

    with pytest.raises(NotFit, match="did not speculate"):
        read(matrix(series))


def test_differences_are_exact_and_in_order() -> None:
    found = read(matrix(engine({0: 1000, 15: 1100, 30: 1100, 45: 1400})))

    assert found.counted == counted(400)
    assert found.traffic.generation_tokens == 1000
    assert [(point.at, point.seconds, point.counted.drafts) for point in found.trend] == [
        (T0 + 15, 15, 100),
        (T0 + 30, 15, 0),
        (T0 + 45, 15, 300),
    ]
    assert found.seconds == 45
    assert found.since_start[0].counted == counted(1400)
    assert found.notes == ()


def test_a_step_back_starts_from_zero() -> None:
    found = read(matrix(engine({0: 1000, 15: 1100, 30: 40, 45: 60})))

    assert found.counted == counted(160)
    assert found.parts[0].restarted


def test_a_birth_tells_a_restart_that_no_step_back_shows() -> None:
    found = read(matrix(engine({0: 100, 15: 120, 30: 400}, born={0: -1e9, 15: -1e9, 30: 20})))

    assert found.counted == counted(420)
    assert found.parts[0].restarted


def test_a_step_back_of_one_birth_is_no_restart() -> None:
    """Two replicas of Prometheus that answer in turn: one is a scrape behind."""
    found = read(matrix(engine({0: 100, 15: 200, 30: 190, 45: 300}, born=dict.fromkeys((0, 15, 30, 45), -1e9))))

    assert found.counted == counted(200)
    assert not found.parts[0].restarted
    assert any("1 samples are left out" in note for note in found.notes)


def test_an_engine_born_in_the_range_counts_from_zero() -> None:
    labels = {**FIRST_ENGINE, "instance": "vllm-new:8000"}
    series = engine({0: 50, 15: 80}, labels, born={0: -10, 15: -10})

    found = read(matrix(moved(series, time.time() - 100 - T0)))

    assert found.counted == counted(80)
    assert not found.parts[0].restarted
    assert found.seconds == pytest.approx(25)


def test_a_gap_is_noted_and_counted_over() -> None:
    found = read(matrix(engine({0: 100, 15: 120, 315: 500, 330: 510})))

    assert found.counted == counted(410)
    assert any("has no samples for 300 s" in note for note in found.notes)


def test_nan_is_left_out_with_a_note() -> None:
    series = engine({0: 100, 15: 120, 30: 140})
    series[0]["values"][1][1] = "NaN"

    found = read(matrix(series))

    assert found.counted == counted(40)
    assert [point.seconds for point in found.trend] == [30]
    assert any("1 samples are left out: they are NaN" in note for note in found.notes)


def test_only_times_that_every_counter_has_are_used() -> None:
    series = engine({0: 100, 15: 120, 30: 140})
    second_position = series[-1]
    del second_position["values"][2]

    found = read(matrix(series))

    assert found.counted == counted(20)


def test_counters_torn_apart_by_a_scrape_are_left_out() -> None:
    series = engine({0: 100, 15: 110, 30: 140})
    series[4]["values"][1][1] = "130"  # accepted at the first position, more than drafts

    found = read(matrix(series))

    assert found.counted == counted(40)
    assert [point.seconds for point in found.trend] == [30]


def test_a_restart_with_more_positions_is_read() -> None:
    before = engine({0: 100, 15: 110})
    after = engine({30: 20, 45: 40}, positions=3)
    merged = copy.deepcopy(after)
    for each in merged:
        key = {name: each["metric"].get(name) for name in ("__name__", "position")}
        for other in before:
            if {name: other["metric"].get(name) for name in key} == key:
                each["values"] = other["values"] + each["values"]

    found = read(matrix(merged))

    assert found.counted == DraftCounters(50, 100, 75, (50, 25, 0))


def test_engines_and_instances_are_parts_of_their_own() -> None:
    labels = [
        FIRST_ENGINE,
        {**FIRST_ENGINE, "engine": "1"},
        {**FIRST_ENGINE, "instance": "vllm-b:8000", "model_name": "\x1b[31mred"},
    ]
    series = [each for n, one in enumerate(labels, start=1) for each in engine({0: 0, 15: 10 * n}, one)]

    found = read(matrix(series))

    assert {(part.where, part.model, part.engine, part.counted.drafts) for part in found.parts} == {
        ("vllm-a:8000", "tiny", "0", 10),
        ("vllm-a:8000", "tiny", "1", 20),
        ("vllm-b:8000", "\x1b[31mred", "0", 30),
    }
    assert [point.counted for point in found.trend] == [counted(60)]


def test_two_clusters_with_one_instance_name_are_told_apart() -> None:
    labels = [{**FIRST_ENGINE, "cluster": name} for name in ("east", "west")]
    series = [each for n, one in enumerate(labels, start=1) for each in engine({0: 0, 15: 10 * n}, one)]

    found = read(matrix(series))

    assert [part.where for part in found.parts] == ["vllm-a:8000 (cluster=east)", "vllm-a:8000 (cluster=west)"]


def test_one_engine_scraped_by_two_jobs_counts_once() -> None:
    born = dict.fromkeys((0.0, 15.0, 30.0), -1e9)
    twice = [
        *engine({0: 100, 15: 110, 30: 140}, FIRST_ENGINE, born),
        *engine({0: 100, 15: 110}, {**FIRST_ENGINE, "job": "pods", "instance": "10.0.0.1:8000"}, born),
    ]

    found = read(matrix(twice))

    assert found.counted == counted(40)
    assert any("is the same engine as the one at vllm-a:8000" in note for note in found.notes)


def test_an_engine_with_one_sample_is_left_out() -> None:
    found = read(matrix([*engine({0: 0, 15: 10}), *engine({15: 9}, {**FIRST_ENGINE, "engine": "1"})]))

    assert found.counted == counted(10)
    assert any("engine 1" in note and "has one sample" in note for note in found.notes)


def test_one_sample_in_all_says_nothing() -> None:
    with pytest.raises(CannotSay, match="too few samples") as refused:
        read(matrix(engine({0: 9})))
    assert "longer --query-range" in refused.value.next_step


def test_a_long_range_has_a_bounded_trend() -> None:
    found = read(matrix(engine({15 * n: n for n in range(5000)})))

    assert found.counted.drafts == 4999
    assert 100 < len(found.trend) <= 240
    assert sum(point.counted.drafts for point in found.trend) == 4999


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("0.5", "is 0.5, not a count"),
        ("-1", "is -1, not a count"),
        ("+Inf", "inf"),
        ("many", "inf"),
        ("1e300", "1e.300"),
    ],
)
def test_a_sample_that_is_no_count_is_named(value: str, what: str) -> None:
    with pytest.raises(NotFit, match=what) as refused:
        read(matrix(engine({0: 0, 15: value})))
    assert "scrapes vLLM itself" in refused.value.next_step


def test_a_series_that_is_there_twice_is_named() -> None:
    with pytest.raises(NotFit, match="is there twice"):
        read(matrix([*engine({0: 0, 15: 1}), *engine({0: 0, 15: 1})]))


def test_warnings_of_the_server_are_noted() -> None:
    body = matrix(engine({0: 0, 15: 10}), warnings=["store 10.0.0.1 did not answer"], isPartial=True)

    found = read(body)

    assert found.notes[:2] == (
        "the server warns: store 10.0.0.1 did not answer",
        "the server warns: the answer is partial, a storage node did not answer",
    )


@pytest.mark.parametrize(
    ("respond", "what", "next_step"),
    [
        (sending(b"no", 401), "401: it wants credentials", "USER:PASSWORD@HOST"),
        (sending(b"no", 403), "403: it wants credentials", "USER:PASSWORD@HOST"),
        (sending(b"404 page not found\n", 404), "answers 404, as no Prometheus does", "http://127.0.0.1:9090"),
        (sending(b"<html>log in</html>"), "not as a Prometheus server does", "http://127.0.0.1:9090"),
        (sending(b"<html>bad gateway</html>", 502), "answers 502", "http://127.0.0.1:9090"),
        (sending(recorded("prometheus-range")[:5000]), "cut short", "try again"),
        (sending(b'{"status":"success"}'), "not as a Prometheus server does", "http://127.0.0.1:9090"),
        (sending(b'{"status":"success","data":{"result":[{"metric":7}]}}'), "not as a Prometheus", "9090"),
        (
            sending(b'{"status":"error","errorType":"timeout","error":"query timed out"}', 503),
            "timed out",
            "larger --step",
        ),
        (sending(b"#" * (LARGEST_BODY + 1)), "more than 16 MiB", "larger --step"),
        (sending(b"x", Content_Encoding="gzip"), "encoding that was not asked for", "9090"),
    ],
    ids=["401", "403", "404", "HTML", "502", "cut short", "no data", "odd series", "slow", "too large", "gzip"],
)
def test_a_server_that_misbehaves_is_named(respond: Respond, what: str, next_step: str) -> None:
    with server_that(respond) as url, pytest.raises(NotFit, match=what) as refused:
        read_prometheus(url, 3600, 15, None, 10)
    assert next_step in refused.value.next_step


def test_an_endless_error_text_is_shortened() -> None:
    body = json.dumps({"status": "error", "errorType": "bad\x1b" * 1000, "error": "\x1b[31m" + "a" * 10**6}).encode()

    with pytest.raises(NotFit) as refused:
        read(body, 400)
    assert len(refused.value.what) < 700
    assert "\x1b" not in refused.value.what


@pytest.mark.parametrize(
    ("given_path", "asked_path"),
    [
        ("", "/api/v1/query_range"),
        ("/", "/api/v1/query_range"),
        ("/prometheus", "/prometheus/api/v1/query_range"),
        ("/select/0/prometheus/", "/select/0/prometheus/api/v1/query_range"),
        ("/prometheus/api/v1", "/prometheus/api/v1/query_range"),
        ("/api/v1/query_range", "/api/v1/query_range"),
        ("/graph?g0.expr=up", "/api/v1/query_range"),
    ],
)
def test_any_usual_form_of_the_address_is_taken(given_path: str, asked_path: str) -> None:
    asked: list[str] = []

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        sending(matrix(engine({0: 0, 15: 10})))(request)

    with server_that(respond) as url:
        read_prometheus(f"{url}{given_path}", 3600, 15, 'ti"ny\\', 10)

    [address] = map(urlsplit, asked)
    sent = parse_qs(address.query)
    assert address.path == asked_path
    assert set(sent) == {"query", "start", "end", "step"}
    assert 'model_name="ti\\"ny\\\\"' in sent["query"][0]
    assert float(sent["end"][0]) - float(sent["start"][0]) == pytest.approx(3600, abs=0.01)


@pytest.mark.parametrize("respond", [sending(b"", 403), sending(b"no"), sending(matrix(engine({0: 0, 15: 10})))])
def test_credentials_are_sent_and_not_shown(respond: Respond) -> None:
    asked: list[tuple[str, str | None]] = []

    def noting(request: http.server.BaseHTTPRequestHandler) -> None:
        asked.append((request.path, request.headers["Authorization"]))
        respond(request)

    with server_that(noting) as url:
        try:
            shown = repr(read_prometheus(url.replace("//", "//user:SECRET@") + "?token=SECRET", 60, 15, None, 10))
        except NotFit as refused:
            shown = refused.what + refused.next_step

    assert asked[0][0].startswith("/api/v1/query_range?token=SECRET&query=")
    assert asked[0][1] == "Basic dXNlcjpTRUNSRVQ="
    assert url in shown
    assert "SECRET" not in shown


def noting_authorization(seen: list[str | None], respond: Respond) -> Respond:
    def noting(request: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(request.headers["Authorization"])
        respond(request)

    return noting


@pytest.mark.parametrize("respond", [sending(b"", 401), sending(b"no"), sending(matrix(engine({0: 0, 15: 10})))])
def test_a_token_in_the_environment_is_sent_and_not_shown(respond: Respond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "SECRET")
    seen: list[str | None] = []

    with server_that(noting_authorization(seen, respond)) as url:
        try:
            shown = repr(read_prometheus(url, 60, 15, None, 10))
        except NotFit as refused:
            shown = refused.what + refused.next_step

    assert seen == ["Bearer SECRET"]
    assert "SECRET" not in shown


@pytest.mark.parametrize("token", [None, ""])
def test_without_a_token_none_is_sent_and_a_refusal_tells_of_it(
    token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMETHEUS_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("PROMETHEUS_TOKEN", token)
    seen: list[str | None] = []

    with server_that(noting_authorization(seen, sending(b"", 403))) as url, pytest.raises(NotFit) as refused:
        read_prometheus(url, 60, 15, None, 10)

    assert seen == [None]
    assert "PROMETHEUS_TOKEN" in refused.value.next_step


def test_credentials_in_the_url_outweigh_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "SECRET")
    seen: list[str | None] = []

    with server_that(noting_authorization(seen, sending(matrix(engine({0: 0, 15: 10}))))) as url:
        read_prometheus(url.replace("//", "//user:password@"), 60, 15, None, 10)

    assert seen == ["Basic dXNlcjpwYXNzd29yZA=="]


def test_a_token_is_not_taken_along_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "SECRET")
    seen: list[str | None] = []

    with (
        server_that(noting_authorization(seen, sending(matrix(engine({0: 0, 15: 10}))))) as elsewhere,
        server_that(sending(b"", 302, Location=elsewhere)) as url,
    ):
        read_prometheus(url, 60, 15, None, 10)

    assert seen == [None]


@pytest.mark.parametrize(
    "token", ["SECRET ", " SECRET", "SEC RET", "SECRET\n", "SECRET\r\nX: y", "SECRET\u20ac"], ids=ascii
)
def test_what_can_be_no_token_is_refused_and_not_shown(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", token)

    with pytest.raises(BadInput, match="PROMETHEUS_TOKEN holds can be no token") as refused:
        read_prometheus("http://127.0.0.1:1", 60, 15, None, 1)
    assert "SEC" not in refused.value.what + refused.value.next_step


def test_where_nobody_answers_the_next_step_is_about_prometheus() -> None:
    with pytest.raises(NotFit, match="no server answers") as refused:
        read_prometheus("http://127.0.0.1:1", 60, 15, None, 10)
    assert "is Prometheus running?" in refused.value.next_step
    assert "vLLM" not in refused.value.next_step


@pytest.mark.parametrize(
    ("url", "since_s", "step_s", "model"),
    [
        ("ftp://x", 60, 15, None),
        ("http://u:SECRET", 60, 15, None),
        ("http://127.0.0.1:1", 10, 15, None),
        ("http://127.0.0.1:1", 60, 0, None),
        ("http://127.0.0.1:1", math.nan, 15, None),
        ("http://127.0.0.1:1", math.inf, 15, None),
        ("http://127.0.0.1:1", 60, 15, "\ud800"),
    ],
    ids=ascii,
)
def test_bad_input_is_refused(url: str, since_s: float, step_s: float, model: str | None) -> None:
    with pytest.raises(BadInput) as refused:
        read_prometheus(url, since_s, step_s, model, 1)
    assert "SECRET" not in refused.value.what + refused.value.next_step


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("15m", 900),
        ("1h", 3600),
        ("2d", 172800),
        ("1w", 604800),
        ("1h30m", 5400),
        ("90", 90),
        ("0.5s", 0.5),
    ],
)
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "h", "1y", "-5m", "5 m", "1h!", "nan", "inf", "1e3", "99999999w", "٣s"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no length of time") as refused:
        parse_duration(text)
    assert "15m" in refused.value.next_step


@given(st.text(max_size=20))
def test_any_text_is_a_length_of_time_or_refused(text: str) -> None:
    with suppress(BadInput):
        assert 0 < parse_duration(text) <= 10 * 366 * 86400


def check(body: bytes) -> None:
    with suppress(ToolError):
        found = read(body)
        assert found.parts
        counts = [(each.counted, each.traffic) for each in (*found.parts, *found.since_start)]
        for drafted, traffic in [*counts, *((point.counted, point.traffic) for point in found.trend)]:
            assert drafted.implausible() is None
            assert not traffic.went_back


some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@some
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    check(body)


@some
@given(st.sampled_from(SERVERS), st.floats(0, 1), st.integers(0, 40), st.binary(max_size=40))
def test_a_damaged_answer_is_read_or_refused(server: str, place: float, length: int, patch: bytes) -> None:
    body = recorded(f"{server}-range")
    at = round(place * len(body))
    check(body[:at] + patch + body[at + length :])


COUNTS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), max_size=8)
NAMES = st.sampled_from(["num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos"])


@some
@given(st.lists(st.tuples(NAMES, st.sampled_from("012"), st.sampled_from("01"), COUNTS), max_size=12))
def test_any_samples_give_plausible_counts(made: list[tuple[str, str, str, list[tuple[int, int]]]]) -> None:
    names = {
        (name, position if name.endswith("pos") else "", number): values for name, position, number, values in made
    }
    series = [
        {
            "metric": {**FIRST_ENGINE, "__name__": f"vllm:spec_decode_{name}_total", "engine": number}
            | ({"position": position} if position else {}),
            "values": [[T0 + 15 * at, str(value)] for at, value in values],
        }
        for (name, position, number), values in names.items()
    ]
    check(matrix(series))
