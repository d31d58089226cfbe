"""A server's draft context: asked for with care, told as JSON and Prometheus text, believed in nothing, and shown."""

import asyncio
import http.server
import json
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dspark_cli import main as entry
from dspark_cli.errors import NotFit
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_context import (
    ContextCounters,
    DraftContext,
    RestoredBucket,
    ServerContext,
    WorkerContext,
    buckets_of,
    over_window,
)
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.findings.acceptance import collapse
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, Severity
from dspark_cli.profiling.judge import report_on
from dspark_cli.report.acceptance_page import acceptance_page
from dspark_cli.report.acceptance_summary import markdown_summary
from dspark_cli.report.draft_context import context_line
from dspark_cli.sources.acceptance_file import read_acceptance_file
from dspark_cli.sources.running_cache import read_running_cache
from dspark_cli.sources.server_status import ServerStatus, parse_status
from dspark_cli.status_plugin import worker_counters
from dspark_cli.status_plugin.counters_question import counters_question, together
from dspark_cli.status_plugin.endpoint import StatusEndpoint
from dspark_cli.status_plugin.names import ENGINE_METHOD, WORKERS_METHOD
from dspark_cli.status_plugin.patches_here import with_failures
from dspark_cli.status_plugin.prometheus_text import prometheus_text
from dspark_cli.status_plugin.worker_counters import describe_draft_context
from tests.local_server import Respond, server_that
from tests.paths import FIXTURES

TOLD = json.loads((FIXTURES / "status" / "draft-context.json").read_text())
METRICS = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()
OLD_STATUS = (FIXTURES / "status" / "two-groups.json").read_bytes()


def told(change: Callable[[dict[str, Any]], object] = lambda context: None) -> bytes:
    """The handwritten status, after `change` to its draft context."""
    status = json.loads(json.dumps(TOLD))
    change(status["draft_context"])
    return json.dumps(status).encode()


def context_of(body: bytes) -> DraftContext:
    status = parse_status(body, "here")
    assert status.draft_context is not None
    context = status.draft_context.believed
    assert context is not None
    return context


def recording_with(*contexts: DraftContext) -> Recording:
    servers = tuple(ServerContext(f"http://10.0.0.{at}:8000", context) for at, context in enumerate(contexts))
    return Recording(SourceKind.METRICS, ("http://10.0.0.0:8000",), None, (), draft_contexts=servers)


def found(*contexts: DraftContext) -> dict[str, Finding]:
    return {finding.id: finding for finding in report_on(recording_with(*contexts)).findings}


def test_what_is_told_is_what_is_read() -> None:
    context = context_of(told())

    assert (context.policy, context.active, context.differing) == ("validity", True, ())
    assert context.counters == ContextCounters(12, 9216, 6144, 3072, 0)  # once, though two ranks tell it
    assert [bucket.name for bucket in context.buckets][1:3] == ["1 to 255", "256 to 1,023"]
    assert context.buckets[-1].name == "65,536 or more"
    assert context.buckets[2].counted == DraftCounters(600, 4200, 13, (12, 1, 0, 0, 0, 0, 0))


def test_a_status_of_before_has_neither_patches_nor_draft_context() -> None:
    status = parse_status(OLD_STATUS, "here")

    assert (status.patches, status.draft_context) == ((), None)


def test_a_server_that_cannot_tell_has_no_draft_context_but_a_reason() -> None:
    status = parse_status(json.dumps({**TOLD, "draft_context": {"unsupported": "worker class"}}).encode(), "here")

    assert status.draft_context is not None
    assert (status.draft_context.believed, status.draft_context.unsupported) == (None, "worker class")


def set_bucket(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda context: context["acceptance"]["buckets"][2].update(fields)


def set_worker(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda context: context["workers"][1].update(fields)


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "a count below zero": set_worker(hidden_tokens=-1),
    "an absurd count": set_worker(zeroed_tokens=2**60),
    "a terminal's escape": set_worker(inactive_reason="\x1b[2J"),
    "a long reason": set_worker(inactive_reason="x" * 5000),
    "a count that is no number": set_worker(admissions="many"),
    "a worker twice": set_worker(rank=0),
    "no worker": lambda context: context.update(workers=[]),
    "a million workers": lambda context: context.update(workers=context["workers"] * 5000),
    "a million buckets": lambda context: context["acceptance"].update(buckets=context["acceptance"]["buckets"] * 20),
    "buckets out of order": lambda context: context["acceptance"]["buckets"].reverse(),
    "an empty bucket": set_bucket(restored_to=256),
    "a bucket from below": set_bucket(restored_from=-1),
    "more accepted than drafted": set_bucket(draft_tokens=3),
    "more accepted than steps": set_bucket(accepted_per_position=[601, 0, 0, 0, 0, 0, 0]),
    "a rise over positions": set_bucket(accepted_per_position=[1, 12, 0, 0, 0, 0, 0]),
    "too many positions": set_bucket(accepted_per_position=[0] * 1001),
    "positions that do not add up": set_bucket(accepted_tokens=900, draft_tokens=4200),
    "nested buckets": set_bucket(accepted_per_position=[[[]]]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_server_can_tell_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(NotFit, match="no status that dspark-tool"):
        parse_status(told(change), "here")


@pytest.mark.parametrize(
    "patches", [[{"name": "a", "status": "native"}] * 257, [{"name": "\x07", "status": "native"}], [{"name": 1}], "all"]
)
def test_patches_are_believed_no_more_than_the_rest(patches: Any) -> None:
    with pytest.raises(NotFit, match="no status that dspark-tool"):
        parse_status(json.dumps({**TOLD, "patches": patches}).encode(), "here")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(["policy", "workers", "acceptance", "unsupported"]), json_values)
def test_any_draft_context_is_read_or_refused(field: str, value: Any) -> None:
    with suppress(NotFit):
        assert isinstance(parse_status(told(lambda context: context.update({field: value})), "here"), ServerStatus)


def test_a_window_is_the_difference_and_a_restart_is_seen() -> None:
    before = context_of(told())
    more = told(
        lambda context: (
            [worker.update(hidden_tokens=3100) for worker in context["workers"]],
            set_bucket(draft_steps=610, draft_tokens=4270)(context),
        )
    )

    window, restarted = over_window(before, context_of(more))
    backwards, again = over_window(context_of(more), before)

    assert (window.counters, restarted) == (ContextCounters(0, 0, 0, 28, 0), False)
    assert window.counted == DraftCounters(10, 70, 0, (0,) * 7)
    assert (backwards, again) == (before, True)


def test_a_window_of_the_same_moment_is_empty() -> None:
    context = context_of(told())

    window, _ = over_window(context, context)

    assert astuple(window.counters) == (0, 0, 0, 0, 0)
    assert window.counted.drafts == 0


def test_several_servers_are_summed_bucket_by_bucket() -> None:
    servers = recording_with(context_of(told()), context_of(told())).draft_contexts

    assert [bucket.counted.drafts for bucket in buckets_of(servers)] == [1600, 80, 1200, 1000, 0, 0, 0]


def bucket(restored_from: int, restored_to: int | None, steps: int, at: tuple[int, ...]) -> RestoredBucket:
    return RestoredBucket(restored_from, restored_to, DraftCounters(steps, steps * len(at), sum(at), at))


def told_by(*buckets: RestoredBucket, policy: str = "off", hidden: int = 0) -> DraftContext:
    counters = ContextCounters(10, 20_000, 20_000 - hidden, hidden, 0)
    return DraftContext(policy, (WorkerContext(0, policy, policy != "off", counters),), buckets)


COLD = bucket(0, 1, 1000, (560, 280, 120, 40))
FINE = bucket(256, 1024, 400, (215, 105, 45, 15))
STALE = bucket(1024, 4096, 400, (8, 1, 0, 0))


def test_a_bucket_that_collapses_is_an_error_with_its_figures() -> None:
    finding = found(told_by(COLD, FINE, STALE))["restored-requests-collapse"]

    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert "1,024 to 4,095 restored tokens have an acceptance length of 1.02" in finding.what
    assert finding.evidence["cold_length"] == 2.0
    assert "dspark-tool serve --draft-context validity" in finding.advice
    assert "the lasting cure is a connector that carries the draft layers" in finding.advice


def test_a_collapse_behind_an_active_policy_is_to_be_reported() -> None:
    finding = found(told_by(COLD, STALE, policy="validity"))["restored-requests-collapse"]

    assert finding.evidence["policy"] == "validity"
    assert "report it" in finding.advice


@pytest.mark.parametrize(
    ("policy", "says", "leaves_out"),
    [("off", "serve --draft-context validity", "report it"), ("validity", "report it", "serve --draft-context")],
)
def test_a_collapsed_profile_is_advised_by_what_the_server_does_already(
    policy: str, says: str, leaves_out: str
) -> None:
    at = (8, 1, 0, 0)
    contexts = recording_with(told_by(policy=policy)).draft_contexts
    evidence = AcceptanceEvidence(AcceptanceProfile.of(DraftCounters(1000, 4000, sum(at), at)), contexts=contexts)

    (finding,) = (found for found in collapse.check(evidence) if isinstance(found, Finding))

    assert says in finding.advice
    assert leaves_out not in finding.advice


@pytest.mark.parametrize(
    "buckets",
    [
        (COLD, FINE),
        (COLD, bucket(256, 1024, 400, (160, 75, 30, 10))),  # a third less: other text may do that
        (COLD, bucket(1024, 4096, 150, (3, 0, 0, 0))),  # too few
        (bucket(0, 1, 100, (56, 28, 12, 4)), STALE),
        (bucket(0, 1, 1000, (12, 1, 0, 0)), STALE),  # cold ones are no better
        (STALE,),
        (COLD,),
        (),
    ],
)
def test_less_is_no_collapse(buckets: tuple[RestoredBucket, ...]) -> None:
    assert "restored-requests-collapse" not in found(told_by(*buckets))


def test_without_a_draft_context_nothing_more_is_said() -> None:
    report = report_on(recording_with())
    silent = report_on(recording_with(told_by()))

    said = {*(finding.id for finding in report.findings), *(check.id for check in report.not_checked)}

    assert not {"restored-requests-collapse", "stale-context-hidden", "draft-context-ranks-differ"} & said
    assert report.by_restored == ()
    assert (silent.findings, silent.not_checked) == (report.findings, report.not_checked)


@pytest.mark.parametrize(
    ("policy", "hidden", "said"),
    [("validity", 8_000, True), ("validity", 100, False), ("restored", 20_000, False), ("off", 0, False)],
)
def test_much_stale_context_is_worth_a_word_where_it_was_looked_at(policy: str, hidden: int, said: bool) -> None:
    finding = found(told_by(COLD, policy=policy, hidden=hidden)).get("stale-context-hidden")

    assert (finding is not None) is said
    if finding is not None:
        assert finding.severity is Severity.INFO
        assert "draft context of 8,000 of 20,000 restored tokens was stale and hidden" in finding.what


def test_ranks_that_differ_are_a_defect_and_each_is_shown() -> None:
    context = context_of(told(set_worker(hidden_tokens=3000)))

    finding = found(context)["draft-context-ranks-differ"]

    assert finding.severity is Severity.ERROR
    assert "engine 0 rank 0" in finding.what
    assert "hidden 3,072" in finding.what
    assert "hidden 3,000" in finding.what


def test_engines_may_differ() -> None:
    assert context_of(told(set_worker(hidden_tokens=3000, engine=1, rank=0))).differing == ()


@pytest.mark.parametrize(
    ("worker", "line"),
    [
        ({"active": False, "inactive_reason": "unknown source"}, "policy validity, not active: unknown source"),
        ({"active": False, "inactive_reason": None}, "policy validity, not active: nothing was drafted yet"),
        ({}, "9,216 tokens restored in 12 admissions: 6,144 valid, 3,072 hidden, 0 zeroed"),
    ],
)
def test_one_line_says_policy_state_and_counters(worker: dict[str, Any], line: str) -> None:
    context = context_of(told(lambda context: [each.update(worker) for each in context["workers"]]))

    assert line in context_line(context)


HOSTILE_TEXT = "<script>alert(1)</script>\x1b[2J\n```\n# forged"


def test_hostile_words_reach_no_page_and_no_terminal() -> None:
    """Such a status is refused; a saved report may still hold it."""
    worker = WorkerContext(0, HOSTILE_TEXT, False, ContextCounters(), inactive_reason=HOSTILE_TEXT)
    context = DraftContext(HOSTILE_TEXT, (worker,), (COLD, STALE), None)
    report = report_on(recording_with(context, replace(context, buckets=(), not_counted=HOSTILE_TEXT)))

    page, summary = acceptance_page(report), markdown_summary(report)

    assert "<script>" not in page
    assert "\x1b" not in page + summary + context_line(context)
    assert "\n# forged" not in summary
    assert "&lt;script&gt;" in page


def test_a_saved_report_keeps_its_draft_context_and_a_changed_one_is_refused(tmp_path: Any, tool: "Tool") -> None:
    with server_that(serving(metrics=METRICS, status=told())) as url:
        _, out, _ = tool("acceptance", "--url", url, "--json", "--fail-on", "never")
    saved = tmp_path / "report.json"
    saved.write_text(out)

    read = read_acceptance_file(saved)
    changed = json.loads(out)
    changed["recording"]["draft_contexts"][0]["context"]["buckets"][2]["counted"]["accepted"] = 10**6
    saved.write_text(json.dumps(changed))

    assert read.draft_contexts[0].context == context_of(told())
    with pytest.raises(NotFit, match="was changed"):
        read_acceptance_file(saved)


# The plugin.


class Client:
    """An engine client whose answers are given; it notes what it is asked."""

    def __init__(self, engines: list[tuple[list[dict[str, Any]], dict[str, Any]]], **parallel: Any) -> None:
        self.asked: list[str] = []
        self.errored = False
        self.engine_core = self
        self._engines = engines
        single = {"world_size": 1, "data_parallel_size": len(engines), "data_parallel_size_local": len(engines)}
        outside = {"data_parallel_external_lb": False, "data_parallel_hybrid_lb": False}
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(**{**single, **outside, **parallel}))

    async def call_utility_all_async(self, method: str, *args: Any) -> list[Any]:
        self.asked.append(method)
        await asyncio.sleep(0.01)
        return [engine if method == ENGINE_METHOD else workers for workers, engine in self._engines]


ENGINE = (
    TOLD["draft_context"]["workers"][:1],
    {"acceptance": TOLD["draft_context"]["acceptance"], "failed_patches": {}, "configuration": {"workers": 1}},
)


@pytest.fixture
def plugin_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.status_plugin.counters_question.server_refusal", lambda client: None)


@pytest.mark.usefixtures("plugin_loaded")
def test_those_who_ask_at_once_interrupt_the_engine_once() -> None:
    client = Client([ENGINE])
    question = counters_question(client)

    async def story() -> list[dict[str, Any]]:
        at_once = await asyncio.gather(*(question.answer(5) for _ in range(50)))
        return [*at_once, await question.answer(5)]

    answers = asyncio.run(story())

    assert sorted(client.asked) == sorted([WORKERS_METHOD, ENGINE_METHOD])
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["policy"] == "validity"


@pytest.mark.usefixtures("plugin_loaded")
def test_all_engines_are_summed_and_their_workers_told_apart() -> None:
    client = Client([ENGINE, ENGINE])

    counters = asyncio.run(counters_question(client).answer(5))

    assert [worker["engine"] for worker in counters["workers"]] == [0, 1]
    assert [bucket["draft_steps"] for bucket in counters["acceptance"]["buckets"]] == [1600, 80, 1200, 1000, 0, 0, 0]


@pytest.mark.usefixtures("plugin_loaded")
def test_a_patch_that_a_worker_or_an_engine_core_could_not_put_on_has_failed() -> None:
    workers, engine = ENGINE
    in_worker = [{**workers[0], "failed_patches": {"draft_context_v2": "unsupported: changed"}}]
    client = Client([ENGINE, (in_worker, {**engine, "failed_patches": {"explicit_depth_zero": "ImportError: x"}})])

    failed = asyncio.run(counters_question(client).answer(5))["failed_patches"]
    patches = [
        {"name": name, "status": "applies", "evidence": "read"}
        for name in ("draft_context_v2", "explicit_depth_zero", "zero_width_graphs")
    ]
    told = {patch["name"]: (patch["status"], patch["evidence"]) for patch in with_failures(patches, failed)}

    assert told == {
        "draft_context_v2": ("failed", "unsupported: changed"),
        "explicit_depth_zero": ("failed", "ImportError: x"),
        "zero_width_graphs": ("applies", "read"),
    }


def test_engines_that_must_not_be_asked_are_not() -> None:
    client = Client([ENGINE])
    client.errored = True

    counters = asyncio.run(counters_question(client).answer(5))

    assert set(counters) == {"unsupported"}
    assert client.asked == []


@pytest.mark.usefixtures("plugin_loaded")
def test_a_worker_that_could_not_be_asked_stands_beside_those_that_were() -> None:
    workers, engine = ENGINE
    client = Client(
        [([*workers, {"rank": 1, "unsupported": "dspark-tool is not installed on the worker's host"}], engine)]
    )

    first, second = asyncio.run(counters_question(client).answer(5))["workers"]

    assert (first["policy"], second["policy"]) == ("validity", "off")
    assert (second["rank"], second["engine"], second["active"]) == (1, 0, False)
    assert "not installed" in second["inactive_reason"]


def test_a_context_that_waits_for_its_first_draft_step_has_no_reason() -> None:
    assert (
        worker_counters._plain(
            {"rank": 0, "policy": "validity", "active": False, "inactive_reason": "no draft step yet"}
        )["inactive_reason"]
        is None
    )


def test_one_engine_that_does_not_count_leaves_no_sum() -> None:
    answer = together([TOLD["draft_context"]["acceptance"], {"unsupported": "log stats are off"}])

    assert answer == {"unsupported": "log stats are off"}


def test_a_worker_without_the_patched_runtime_says_why() -> None:
    answer = describe_draft_context(SimpleNamespace(rank=3))

    assert (answer["rank"], answer["active"], answer["restored_tokens"]) == (3, False, 0)
    assert answer["inactive_reason"] is None or answer["inactive_reason"].isprintable()
    assert json.loads(json.dumps(answer)) == answer


def samples(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def test_the_text_for_prometheus_says_the_same() -> None:
    found = samples(prometheus_text(TOLD["patches"], TOLD["draft_context"]))

    def value(sample: str, **labels: str) -> float:
        return found[sample, frozenset(labels.items())]

    assert value("dspark_draft_context_hidden_tokens_total", engine="0", rank="1") == 3072
    assert value("dspark_draft_context_active", engine="0", rank="0") == 1
    assert value("dspark_draft_acceptance_draft_steps_total", restored_from="256") == 600
    assert value("dspark_draft_acceptance_accepted_tokens_per_pos_total", restored_from="0", position="1") == 190
    assert value("dspark_patch_info", name="draft_context", status="applies") == 1


def test_a_patch_that_is_on_in_one_worker_and_failed_in_another_can_be_alerted_on() -> None:
    first, second = TOLD["draft_context"]["workers"]
    workers = [
        {**first, "patches": ["race_free_shift"], "failed_patches": {}},
        {**second, "patches": [], "failed_patches": {"race_free_shift": "changed since"}},
    ]

    found = samples(prometheus_text([], {"workers": workers}))

    on = {dict(labels)["rank"]: value for (name, labels), value in found.items() if name == "dspark_patch_on"}
    assert on == {"0": 1, "1": 0}


@pytest.mark.parametrize("counters", [{"unsupported": "no"}, {"workers": [], "acceptance": {"unsupported": "no"}}])
def test_what_is_unsupported_has_no_sample(counters: dict[str, Any]) -> None:
    assert samples(prometheus_text([], counters)) == {}


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_words_make_a_text_that_can_be_read(name: str, policy: str) -> None:
    counters = {"workers": [{**TOLD["draft_context"]["workers"][0], "policy": policy}]}
    clean = [word.encode("utf-8", "replace").decode() for word in (name, policy)]
    counters["workers"][0]["policy"] = clean[1]

    found = samples(prometheus_text([{"name": clean[0], "status": "native"}], counters))

    assert any(sample == "dspark_draft_context_active" for sample, _ in found)


def test_the_metrics_route_has_the_same_key_rule_and_only_reads() -> None:
    app, endpoint = FastAPI(), StatusEndpoint()
    endpoint.attach_router(app)
    asyncio.run(endpoint.init_state(None, app.state, Namespace(api_key=["secret"])))
    client = TestClient(app)

    codes = [
        client.get("/dspark/metrics", headers=headers).status_code
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Bearer secret"})
    ]

    assert codes == [401, 401, 501]
    assert client.post("/dspark/metrics").status_code == 405


# The consumers.

Tool = Callable[..., tuple[int, str, str]]


def serving(**pages: bytes) -> Respond:
    """A server with these pages by the last part of their path; 404 elsewhere."""

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        body = pages.get(request.path.rpartition("/")[2])
        with suppress(OSError):
            request.send_response(404 if body is None else 200)
            request.send_header("Content-Length", str(len(body or b"")))
            request.end_headers()
            request.wfile.write(body or b"")

    return respond


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tool:
    """dspark-tool in this process: exit code, stdout and stderr."""
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dspark-tool", *arguments])
        with pytest.raises(SystemExit) as ended:
            entry.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return int(ended.value.code or 0), out, err

    return run


def test_acceptance_shows_restored_buckets_and_finds_the_collapse(tool: Tool) -> None:
    with server_that(serving(metrics=METRICS, status=told())) as url:
        code, out, _ = tool("acceptance", "--url", url)
        _, document, _ = tool("acceptance", "--url", url, "--json")

    assert code == 1
    assert "256 to 1,023" in out
    assert "each row has other requests, so rows do not compare" in out
    assert "error: restored-requests-collapse (likely)" in out
    assert "draft context: policy validity, active; 9,216 tokens restored" in out
    by_restored = json.loads(document)["by_restored"]
    assert [each["profile"]["drafts"] for each in by_restored] == [800, 40, 600, 500]


def test_a_window_has_the_window_of_the_draft_context_too(tool: Tool) -> None:
    calls: list[str] = []

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        calls.append(request.path)
        grown = calls.count("/dspark/status") > 1
        body = told(set_bucket(draft_steps=650, draft_tokens=4550)) if grown else told()
        serving(metrics=METRICS, status=body)(request)

    with server_that(respond) as url:
        _, out, _ = tool("acceptance", "--url", url, "--interval", "0.1", "--json")

    (each,) = json.loads(out)["by_restored"]
    assert (each["restored_from"], each["profile"]["drafts"]) == (256, 50)
    assert calls.count("/dspark/status") == 2


@pytest.mark.parametrize("status", [None, b"<html>welcome</html>", OLD_STATUS, b'{"error":"Unauthorized"}'])
def test_a_server_without_it_is_reported_as_before_after_one_request(status: bytes | None, tool: Tool) -> None:
    calls: list[str] = []

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        calls.append(request.path)
        pages = {"metrics": METRICS} | ({"status": status} if status is not None else {})
        serving(**pages)(request)

    with server_that(respond) as url:
        _, out, err = tool("acceptance", "--url", url, "--interval", "0.1", "--fail-on", "never")

    assert "restored" not in out.replace("cold and restored", "")
    assert "draft context" not in out
    assert calls.count("/dspark/status") == 1
    assert "error" not in err


def test_inspect_cache_says_it_in_one_line(tool: Tool) -> None:
    with server_that(serving(metrics=METRICS, status=told())) as url:
        summary = read_running_cache(url)
        _, out, _ = tool("inspect-cache", "--url", url)

    assert summary.draft_context == context_of(told())
    assert sum(line.startswith("draft context: policy validity, active") for line in out.splitlines()) == 1


def test_doctor_asks_a_server_for_versions_patches_and_draft_context(tool: Tool) -> None:
    with server_that(serving(status=told())) as url:
        code, out, _ = tool("doctor", "--url", url)

    assert code == 0
    assert "0.32.0" in out
    assert "1 native, 1 applies, 1 unsupported on this vLLM" in " ".join(out.split())
    assert "policy validity, active" in out
    assert out.splitlines()[-1] == "no problem found"
    assert "use_eagle" not in out


def test_doctor_says_what_runs_in_a_server_and_what_failed(tool: Tool) -> None:
    status = json.loads(told(set_worker(patches=["draft_context_v1", "skipped_drafter"])))
    status["configurations"] = [{"patches": ["explicit_depth_zero"]}]
    status["patches"].append({"name": "zero_width_graphs", "status": "failed", "evidence": "ImportError: x"})

    with server_that(serving(status=json.dumps(status).encode())) as url:
        code, out, _ = tool("doctor", "--url", url)
        _, document, _ = tool("doctor", "--url", url, "--json")

    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert code == 1
    assert {"put on draft_context_v1, skipped_drafter, explicit_depth_zero", "failed zero_width_graphs"} <= rows
    assert "problem: the patch zero_width_graphs failed: ImportError: x" in rows
    assert json.loads(document)["put_on"] == ["draft_context_v1", "skipped_drafter", "explicit_depth_zero"]
    assert len(json.loads(document)["patches"]) == len(status["patches"])


def test_doctor_says_that_an_old_server_does_not_tell_what_runs(tool: Tool) -> None:
    with server_that(serving(status=OLD_STATUS)) as url:
        _, out, _ = tool("doctor", "--url", url)

    assert "put on the server does not tell" in " ".join(out.split())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (json.dumps({**TOLD, "patches": [{"name": "a", "status": "failed"}]}).encode(), "the patch a failed"),
        (told(set_worker(hidden_tokens=1)), "treat restored tokens differently"),
        (told(set_worker(active=False, inactive_reason="unknown source")), "is not active"),
    ],
)
def test_doctor_ends_with_findings_where_something_asked_for_does_not_work(
    body: bytes, problem: str, tool: Tool
) -> None:
    with server_that(serving(status=body)) as url:
        code, out, _ = tool("doctor", "--url", url)

    assert code == 1
    assert problem in " ".join(out.split())


def test_doctor_says_how_a_server_without_the_plugin_could_be_asked(tool: Tool) -> None:
    with server_that(serving(metrics=METRICS)) as url:
        code, _, err = tool("doctor", "--url", url)

    assert code == 3
    assert "dspark-tool serve --status" in err
