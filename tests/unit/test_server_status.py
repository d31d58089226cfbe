"""What the status plugin and /metrics say of a running server's KV cache, and servers that say something else."""

import http.server
import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay, NotFit
from dspark_cli.facts.cache_summary import CacheSource, EngineCache
from dspark_cli.findings.finding import Severity
from dspark_cli.planning.inspection import judge_server
from dspark_cli.sources.bounded_get import LARGEST_BODY
from dspark_cli.sources.cache_metrics import summary_of_metrics
from dspark_cli.sources.running_cache import read_running_cache, summary_of_status
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from dspark_cli.sources.server_status import (
    MOST_GROUPS,
    KeyWanted,
    NoPlugin,
    api_key,
    parse_status,
    read_status,
    status_address,
)
from tests.local_server import Respond, server_that
from tests.paths import FIXTURES

TWO_RANKS, TWO_STAGES, TWO_ENGINES, TWO_GROUPS, CONTEXT_PARALLEL = (
    (FIXTURES / "status" / f"{name}.json").read_bytes()
    for name in ("two-ranks", "two-stages", "two-engines", "two-groups", "context-parallel-0.33-h200")
)
METRICS = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()
TWO_ENGINES_METRICS = (FIXTURES / "status" / "two-engines.metrics.txt").read_text()


def serving(**pages: tuple[int, bytes]) -> Respond:
    """A server with a status page and a metrics page; 404 elsewhere."""

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        code, body = pages.get(request.path.rpartition("/")[2], (404, b"{}"))
        with suppress(OSError):
            request.send_response(code)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

    return respond


def guarded(key: str, page: bytes) -> Respond:
    """A server whose status wants `key`, and whose metrics are open, as vLLM's are."""

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        admitted = request.headers.get("Authorization") == f"Bearer {key}"
        status = (200, page) if admitted else (401, b'{"error":"Unauthorized"}')
        serving(status=status, metrics=(200, METRICS))(request)

    return respond


def page_with(labels: str) -> Scrape:
    return Scrape("here", 0.0, parse_samples(f"vllm:cache_config_info{{{labels}}} 1.0\n", "here"))


def changed(**plan: Any) -> bytes:
    """A recorded status with other fields in its first worker's plan."""
    status = json.loads(TWO_GROUPS)
    status["cache"]["workers"][0]["plan"].update(plan)
    return json.dumps(status).encode()


def with_group(**group: Any) -> bytes:
    """A recorded status with other fields in its last group, whose block of 196,608 bytes fills the pool's."""
    groups = recorded_groups()
    groups[-1].update(group)
    return changed(groups=groups)


def recorded_groups() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = json.loads(TWO_GROUPS)["cache"]["workers"][0]["plan"]["groups"]
    return groups


def test_a_recorded_status_is_read_as_the_plan_it_is() -> None:
    with server_that(serving(status=(200, TWO_GROUPS))) as url:
        status = read_status(url)

    plan = status.cache.workers[0].plan
    assert plan is not None
    assert (status.vllm, plan.blocks, plan.full_sequences) == ("0.32.0", 2730, 2730 / (25 + 32))
    assert [(group.role, group.kind, group.window, group.draft_layers) for group in plan.groups] == [
        ("target", "sliding window", 1024, 0),
        ("shared", "full attention", None, 2),
    ]


@pytest.mark.parametrize("name", ["two-ranks", "two-stages", "two-groups", "context-parallel-0.33-h200"])
def test_the_plugin_and_the_metrics_of_one_server_agree(name: str) -> None:
    status = parse_status((FIXTURES / "status" / f"{name}.json").read_bytes(), "here")
    page = (FIXTURES / "status" / f"{name}.metrics.txt").read_text()

    (engine,) = summary_of_metrics(Scrape("here", 0.0, parse_samples(page, "here")), "ask").engines

    for plan in (worker.plan for worker in status.cache.workers):
        assert plan is not None
        assert (plan.blocks, plan.kv_tokens, plan.full_sequences, plan.max_model_len) == (
            engine.blocks,
            engine.kv_tokens,
            engine.full_sequences,
            engine.max_model_len,
        )


def test_workers_with_one_plan_are_one_and_others_are_not() -> None:
    ranks = summary_of_status(parse_status(TWO_RANKS, "here"), "here")
    stages = summary_of_status(parse_status(TWO_STAGES, "here"), "here")

    assert [worker.workers for worker in ranks.workers] == [("DP0 PP0 TP0", "DP0 PP0 TP1")]
    assert [worker.workers for worker in stages.workers] == [("DP0 PP0 TP0",), ("DP0 PP1 TP0",)]
    first, second = (worker.plan.groups[0].layers for worker in stages.workers)
    assert (first[0], second[0]) == ("model.layers.0.self_attn.attn", "model.layers.2.self_attn.attn")


def test_one_engine_of_several_is_said_to_be_one_of_several() -> None:
    summary = summary_of_status(parse_status(TWO_ENGINES, "here"), "here")

    assert len(summary.workers) == 1
    assert summary.notes[0].startswith("2 engines are behind this server")
    assert [unknown.what for unknown in summary.unknown] == ["the KV caches of the other engines"]


def test_the_plugin_is_preferred_to_the_metrics() -> None:
    with server_that(serving(status=(200, TWO_RANKS), metrics=(200, METRICS))) as url:
        summary = read_running_cache(url)

    assert (summary.source, summary.unknown, summary.notes, summary.where) == (CacheSource.PLUGIN, (), (), url)
    assert summary.workers[0].plan.blocks == 2730


def test_without_the_plugin_the_metrics_say_less_and_how_to_learn_more() -> None:
    with server_that(serving(metrics=(200, METRICS))) as url:
        summary = read_running_cache(url)

    assert summary.source is CacheSource.METRICS
    assert summary.engines == (
        EngineCache(
            engines=("0",),
            blocks=2048,
            block_tokens=128,
            kv_tokens=262_144,
            full_sequences=64.0,
            max_model_len=4096,
            memory_bytes=1 << 30,
            kv_dtype="auto",
            prefix_caching=True,
        ),
    )
    assert "groups" in summary.unknown[0].what
    assert "--status" in summary.unknown[0].how
    assert summary.notes == ()


def test_the_front_ends_sum_over_engines_is_not_taken_for_one_engines() -> None:
    scrape = Scrape("here", 0.0, parse_samples(TWO_ENGINES_METRICS, "here"))

    summary = summary_of_metrics(scrape, "ask")

    assert [(engine.engines, engine.blocks, engine.kv_tokens) for engine in summary.engines] == [
        (("0", "1"), None, 262_144)
    ]
    assert summary.notes == ("engines 0, 1 have 4,096 blocks together; the other figures are of one, shown for all",)


@given(length=st.integers(16, 1 << 20), blocks=st.integers(1, 1 << 24), blocks_each=st.integers(1, 1 << 12))
def test_the_length_behind_the_metrics_is_the_engines_or_left_open(length: int, blocks: int, blocks_each: int) -> None:
    sequences = blocks / blocks_each
    labels = f'kv_cache_size_tokens="{int(sequences * length)}",kv_cache_max_concurrency="{sequences}"'

    (engine,) = summary_of_metrics(page_with(labels), "ask").engines

    assert engine.max_model_len in (length, None)


@pytest.mark.parametrize("value", ["-1", "0", "1e9", "9" * 5000, "nan", "٣", "", "None", "inf"])
def test_implausible_labels_are_unknown(value: str) -> None:
    labels = ",".join(f'{name}="{value}"' for name in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens"))

    (engine,) = summary_of_metrics(page_with(labels), "ask").engines

    assert (engine.blocks, engine.block_tokens, engine.kv_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("tokens", "sequences", "known"),
    [
        ("9000000000000000000", "1e-320", None),
        ("9000000000000000000", "1e-18", 1e-18),
        ("9000000000000000000", "1e300", None),
        ("1", "1e15", 1e15),
        ("262144", "-64.0", None),
    ],
)
def test_a_length_that_no_model_has_is_unknown(tokens: str, sequences: str, known: float | None) -> None:
    labels = f'kv_cache_size_tokens="{tokens}",kv_cache_max_concurrency="{sequences}"'

    (engine,) = summary_of_metrics(page_with(labels), "ask").engines

    assert (engine.kv_tokens, engine.full_sequences, engine.max_model_len) == (int(tokens), known, None)


def test_a_server_whose_metrics_are_silent_on_its_cache_leaves_nothing_to_say() -> None:
    silent = b"\n".join(line for line in METRICS.splitlines() if b"cache_config_info" not in line) + b"\n"

    with server_that(serving(metrics=(200, silent))) as url, pytest.raises(CannotSay) as nothing:
        read_running_cache(url)

    assert nothing.value.what == f"{url} is a vLLM server whose /metrics say nothing of a KV cache"
    assert "--status" in nothing.value.next_step


@pytest.mark.parametrize(
    ("code", "body", "reason"),
    [
        (
            501,
            b'{"error":"unsupported","detail":"workers on other hosts may lack it"}',
            "unsupported: workers on other",
        ),
        (504, b'{"error":"timeout","detail":"the engine did not answer within 8 s"}', "timeout: the engine did not"),
        (500, b"Internal Server Error", "answers 500"),
        (503, b'{"error":["x"]}', "answers 503"),
        (502, b"[" * 100_000, "answers 502"),
        (200, b"<html>all paths are mine</html>", "no status that dspark-tool"),
        (200, b'{"cache":', "no status that dspark-tool"),
        (
            200,
            b'{"dspark_tool":"9.0","vllm":"0.40","cache":{"engines":1,"workers":[{"rank":0,"plan":{}}]}}',
            "plan.groups",
        ),
    ],
)
def test_a_plugin_that_cannot_tell_leaves_its_reason_beside_the_metrics(code: int, body: bytes, reason: str) -> None:
    with server_that(serving(status=(code, body), metrics=(200, METRICS))) as url:
        summary = read_running_cache(url)

    assert summary.source is CacheSource.METRICS
    assert summary.engines[0].blocks == 2048
    assert reason in summary.notes[0]


def test_workers_that_cannot_tell_leave_their_reason_too() -> None:
    status = json.loads(TWO_RANKS)
    for worker in status["cache"]["workers"]:
        del worker["plan"]
        worker["unsupported"] = "GPUModelRunner of this vLLM does not keep its KVCacheConfig"

    with server_that(serving(status=(200, json.dumps(status).encode()), metrics=(200, METRICS))) as url:
        summary = read_running_cache(url)

    assert summary.source is CacheSource.METRICS
    assert "does not keep its KVCacheConfig" in summary.notes[0]


def test_one_worker_that_cannot_tell_does_not_silence_the_other() -> None:
    status = json.loads(TWO_RANKS)
    status["cache"]["workers"][1] = {"rank": 1, "tp_rank": 1, "unsupported": "no reason"}

    summary = summary_of_status(parse_status(json.dumps(status).encode(), "here"), "here")

    assert [worker.workers for worker in summary.workers] == [("DP0 PP0 TP0",)]
    assert summary.notes == ("worker DP0 PP0 TP1 cannot tell: no reason",)


@pytest.mark.parametrize(
    "plan",
    [
        {"blocks": -1},
        {"blocks": 1 << 70},
        {"kv_tokens": "many"},
        {"full_sequences": -0.5},
        {"platform": "cpu\x1b[2J"},
        {"layout": "L" * 5000},
        {"groups": []},
        {"pool_bytes_per_block": 0},
        {"policy": None},
        {"max_model_len": 1.5},
        {"max_model_len": 0},
        {"blocks": 0},
        {"kv_tokens": None},
        {"full_sequences": None},
        {"blocks": None},
        {"full_sequences": 1e300},
        {"full_sequences": float("nan")},
        {"full_sequences": float("inf")},
        {"memory_bytes": 1 << 63},
        {"pool_bytes_per_block": 1},
        {"largest_length": 5},
        {"largest_length": 0},
        {"stages": [{"stage": 0, "layers": [3], "pool_bytes_per_block": 196_608, "blocks_it_could_hold": None}]},
    ],
)
def test_an_implausible_plan_is_no_plan(plan: dict[str, Any]) -> None:
    with pytest.raises(NotFit, match="no status that dspark-tool"):
        parse_status(changed(**plan), "here")


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({"block_tokens": 0}, "a block has no tokens"),
        ({"window": 0}, "a window has no tokens"),
        ({"copies": 0}, "no rank holds it"),
        ({"page_bytes": 0}, "a page has no bytes"),
        ({"page_bytes": 65_537}, "a page is larger than its place"),
        ({"padded_page_bytes": 0}, "a page is larger than its place"),
        ({"draft_layers": 4}, "more layers are the drafter's"),
        ({"useful_block_bytes": 10**15}, "more bytes are useful"),
        ({"useful_block_bytes": 196_609}, "more bytes are useful"),
        ({"block_bytes": 10**12}, "larger than the pool's"),
        ({"block_bytes": 196_609}, "larger than the pool's"),
        ({"copied_block_bytes": 10**12}, "more bytes are copies"),
        ({"copied_block_bytes": 196_609}, "more bytes are copies"),
        ({"copied_block_bytes": -1}, "negative"),
        ({"window": -1}, "negative"),
        ({"blocks_per_sequence": -1}, "negative"),
        ({"useful_tokens_per_sequence": -1}, "negative"),
        ({"block_tokens": 1 << 63}, "absurdly large"),
        ({"kind": "full\x1b[2J"}, "control characters"),
    ],
)
def test_a_group_that_contradicts_itself_leaves_the_metrics_and_a_note(group: dict[str, Any], reason: str) -> None:
    with server_that(serving(status=(200, with_group(**group)), metrics=(200, METRICS))) as url:
        summary = read_running_cache(url)

    assert (summary.source, summary.engines[0].blocks) == (CacheSource.METRICS, 2048)
    assert reason in summary.notes[0]


def test_groups_that_take_no_blocks_for_a_sequence_are_no_plan() -> None:
    idle = [{**group, "blocks_per_sequence": 0} for group in recorded_groups()]

    with pytest.raises(NotFit, match="takes no blocks"):
        parse_status(changed(groups=idle), "here")


@pytest.mark.parametrize("count", [MOST_GROUPS + 1, 30_000])
def test_more_groups_than_any_model_has_are_refused(count: int) -> None:
    with pytest.raises(NotFit, match="too many groups"):
        parse_status(changed(groups=recorded_groups()[-1:] * count), "here")


@pytest.mark.parametrize(
    "group",
    [
        {"copied_block_bytes": 196_608},
        {"page_bytes": 1, "useful_block_bytes": 3},
        {"blocks_per_sequence": 0},
        {"useful_tokens_per_sequence": None},
        {"window": 1},
        {"draft_layers": 3},
        # What a pipeline stage keeps of a group whose layers are all on another one.
        {
            "layers": [],
            "draft_layers": 0,
            "page_bytes": 0,
            "padded_page_bytes": 0,
            "useful_block_bytes": 0,
            "block_bytes": 0,
        },
    ],
)
def test_a_group_at_the_edge_of_the_plausible_is_believed(group: dict[str, Any]) -> None:
    plan = parse_status(with_group(**group), "here").cache.workers[0].plan

    assert plan is not None
    assert {name: getattr(plan.groups[-1], name) for name in group} == {
        name: tuple(value) if name == "layers" else value for name, value in group.items()
    }


def test_a_block_over_all_stages_may_be_larger_than_one_stages() -> None:
    stages = [
        {"stage": stage, "layers": [2, 1], "pool_bytes_per_block": 98_304, "blocks_it_could_hold": None}
        for stage in range(2)
    ]

    status = parse_status(changed(stages=stages, pool_bytes_per_block=98_304), "here")

    plan = status.cache.workers[0].plan
    assert plan is not None
    assert (plan.groups[0].block_bytes, plan.pool_bytes_per_block) == (196_608, 98_304)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda held: (
            st.lists(held)
            | st.dictionaries(
                st.sampled_from(["dspark_tool", "vllm", "cache", "workers", "engines", "rank", "plan"]), held
            )
        ),
    )
)
def test_any_json_is_a_status_or_refused(document: Any) -> None:
    with suppress(NotFit):
        parse_status(json.dumps(document).encode(), "here")


def test_a_nameless_field_of_a_later_version_does_no_harm() -> None:
    assert parse_status(changed(new_in_a_later_version=[1, 2, 3]), "here").cache.workers[0].plan is not None


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "the-secret")
    monkeypatch.setenv("ANOTHER", "wrong-secret")

    with server_that(guarded("the-secret", TWO_RANKS)) as url:
        found = read_running_cache(url)
        with pytest.raises(KeyWanted) as refused:
            read_running_cache(url, api_key_env="ANOTHER")

    assert found.source is CacheSource.PLUGIN
    assert "secret" not in f"{refused.value.what} {refused.value.next_step}"


def test_without_a_key_the_open_metrics_are_read_and_the_key_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    with server_that(guarded("the-secret", TWO_RANKS)) as url:
        found = read_running_cache(url)

    assert found.source is CacheSource.METRICS
    assert "wants the server's API key" in found.notes[0]
    assert "VLLM_API_KEY" in found.unknown[0].how


def test_the_key_does_not_follow_a_redirect_to_another_host() -> None:
    seen: list[str | None] = []

    def elsewhere(request: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(request.headers.get("Authorization"))
        serving(status=(200, TWO_RANKS))(request)

    with server_that(elsewhere) as other:

        def redirect(request: http.server.BaseHTTPRequestHandler) -> None:
            seen.append(request.headers.get("Authorization"))
            request.send_response(307)
            request.send_header("Location", f"{other}/dspark/status")
            request.send_header("Content-Length", "0")
            request.end_headers()

        with server_that(redirect) as url:
            read_status(url, key="the-secret")

    assert seen == ["Bearer the-secret", None]


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "tab\there"])
def test_what_can_be_no_key_is_refused_unseen(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", key)

    with pytest.raises(BadInput, match="MY_KEY") as refused:
        api_key("MY_KEY")

    assert key not in refused.value.what


def test_a_named_variable_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    with pytest.raises(BadInput, match="MY_KEY is not set"):
        api_key("MY_KEY")
    assert api_key(None) is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:1", "http://h:1/dspark/status"),
        ("http://h:1/", "http://h:1/dspark/status"),
        ("http://h:1/metrics", "http://h:1/dspark/status"),
        ("http://h:1/v1", "http://h:1/dspark/status"),
        ("https://h/prefix/v1/", "https://h/prefix/dspark/status"),
    ],
)
def test_the_address_is_found_from_whatever_was_given(url: str, address: str) -> None:
    assert status_address(url) == address


def test_no_plugin_has_its_own_error() -> None:
    with server_that(serving(metrics=(200, METRICS))) as url, pytest.raises(NoPlugin, match="no status plugin"):
        read_status(url)


def test_a_server_that_drips_is_given_up_in_time() -> None:
    def drip(request: http.server.BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(200):
                request.wfile.write(b" ")
                time.sleep(0.02)

    with server_that(drip) as url, pytest.raises(NotFit, match=r"within 0\.3 s"):
        read_status(url, timeout_s=0.3)


def test_an_endless_body_is_cut_off() -> None:
    def flood(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        with suppress(OSError):
            for _ in range(LARGEST_BODY // (1 << 20) + 8):
                request.wfile.write(b" " * (1 << 20))

    with server_that(flood) as url, pytest.raises(NotFit, match="more than 16 MiB"):
        read_status(url)


def test_where_nothing_answers_the_error_says_so() -> None:
    with server_that(serving()) as url:
        pass

    with pytest.raises(NotFit, match="no server answers"):
        read_running_cache(url)


@pytest.mark.parametrize("url", ["", "no-url", "ftp://h", "http://", "http://h:99999"])
def test_what_is_no_url_is_bad_input(url: str) -> None:
    with pytest.raises(BadInput):
        read_running_cache(url)


def test_an_engine_that_tells_its_drafters_backend_is_judged_on_it() -> None:
    other = CONTEXT_PARALLEL.replace(b'"FLASH_ATTN"', b'"FLASHMLA"')

    trusted, doubted = (
        judge_server(summary_of_status(parse_status(told, "here"), "here")).reports[0]
        for told in (CONTEXT_PARALLEL, other)
    )

    assert [group.sharded for group in trusted.plan.groups] == [True, True, False]
    assert "dcp-backend" not in {*(each.id for each in trusted.findings), *(each.id for each in trusted.not_checked)}
    assert [finding.id for finding in doubted.findings if finding.severity is Severity.ERROR] == ["dcp-backend"]
