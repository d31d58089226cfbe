"""The status plugin in a real vLLM: its figures equal the engine's own, the log's and the offline plan's."""

import dataclasses
import json
import re
import subprocess
import time
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.cache_summary import CacheSource
from dspark_cli.patches.registry import PATCHES
from dspark_cli.sources.cache_log import read_cache_log
from dspark_cli.sources.cache_metrics import summary_of_metrics
from dspark_cli.sources.running_cache import read_running_cache
from dspark_cli.sources.server_metrics import scrape
from dspark_cli.status_plugin.counters_question import MOMENT_S
from tests.end_to_end.test_against_a_running_server import cache_config, raw_counters, tool_json
from tests.live_server import ENGINE_ARGS, TOOL, LiveServer, offline_environment, prompts
from tests.paths import DFLASH, TARGET

pytestmark = pytest.mark.timeout(600)

HOW_IT_WAS_PLANNED = ("layer_kinds", "stages", "sources", "weight_bytes", "largest_length", "planned_in_s")


def plan_of(server: LiveServer) -> CachePlan:
    (worker,) = read_running_cache(server.url).workers
    return worker.plan


def test_the_plugin_says_what_the_engine_reports(server: LiveServer) -> None:
    engine = cache_config(server.metrics())

    plan = plan_of(server)

    assert plan.blocks == int(engine["num_gpu_blocks"])
    assert plan.kv_tokens == int(engine["kv_cache_size_tokens"])
    assert plan.full_sequences == float(engine["kv_cache_max_concurrency"])
    assert {group.block_tokens for group in plan.groups} == {int(engine["block_size"])}
    assert plan.max_model_len == 4096


def test_engine_and_worker_tell_how_they_run(server: LiveServer) -> None:
    status = httpx.get(f"{server.url}/dspark/status", timeout=30).json()

    (engine,), (worker,) = status["configurations"], status["draft_context"]["workers"]
    assert engine["speculative"]["method"] == "dflash"
    assert engine["speculative"]["model"] == str(DFLASH)
    assert engine["speculative"]["num_speculative_tokens"] == worker["draft_tokens"] == 7
    assert (engine["prefix_caching"], engine["max_model_len"], engine["workers"]) == (True, 4096, 1)
    assert worker["patches"] == ["draft_context_v1", "skipped_drafter"]
    assert (worker["model_runner"], worker["draft_layers"], worker["draft_backends"]) == ("V1", 2, ["CPU_ATTN"])


def test_it_knows_the_drafters_layers(server: LiveServer) -> None:
    (group,) = plan_of(server).groups

    assert (group.role, len(group.layers), group.draft_layers) == ("shared", 6, 2)


def test_the_running_engine_is_as_planned(server: LiveServer) -> None:
    planned = tool_json("inspect-cache", "--model", str(TARGET), "--draft", str(DFLASH), "--json", *ENGINE_ARGS)["plan"]

    running = json.loads(json.dumps(dataclasses.asdict(plan_of(server))))

    assert running["memory_bytes"] == running["blocks"] * running["pool_bytes_per_block"] <= planned["memory_bytes"]
    for field in running.keys() - {"memory_bytes", *HOW_IT_WAS_PLANNED}:
        assert running[field] == planned[field], field


def test_the_log_and_the_metrics_agree_and_say_less(server: LiveServer) -> None:
    plan = plan_of(server)

    (in_log,) = read_cache_log(server.log).engines
    (in_metrics,) = summary_of_metrics(scrape(server.url), "ask").engines

    assert (in_log.kv_tokens, in_log.max_model_len, in_log.layout) == (plan.kv_tokens, plan.max_model_len, plan.layout)
    assert in_log.full_sequences == round(plan.full_sequences or 0, 2)
    assert in_log.blocks is None
    assert (in_metrics.blocks, in_metrics.kv_tokens, in_metrics.max_model_len) == (
        plan.blocks,
        plan.kv_tokens,
        plan.max_model_len,
    )
    assert in_metrics.layout is None


def test_asking_often_while_the_server_works_does_no_harm(server: LiveServer) -> None:
    text = server.complete(prompts()[3], max_tokens=32)
    with httpx.Client() as client:
        answers = [client.get(f"{server.url}/dspark/status", timeout=30).json() for _ in range(50)]

    assert all(answer["cache"] == answers[0]["cache"] for answer in answers)
    assert all("workers" in answer["draft_context"] for answer in answers)
    assert server.complete(prompts()[3], max_tokens=32)
    assert text
    assert read_running_cache(server.url).source is CacheSource.PLUGIN


def sums_of(buckets: list[dict[str, Any]]) -> dict[str, Any]:
    """As `raw_counters` has vLLM's own."""
    per_position = zip(*(bucket["accepted_per_position"] for bucket in buckets), strict=True)
    positions = {at: sum(accepted) for at, accepted in enumerate(per_position)}
    return {
        "drafts": sum(bucket["draft_steps"] for bucket in buckets),
        "draft_tokens": sum(bucket["draft_tokens"] for bucket in buckets),
        "accepted_tokens": sum(bucket["accepted_tokens"] for bucket in buckets),
        "accepted_tokens_per_pos": sum(positions.values()),
        "positions": positions,
    }


def settled_buckets(server: LiveServer) -> list[dict[str, Any]]:
    """Once the answers of the last moment are no longer given out."""
    time.sleep(MOMENT_S + 0.5)
    acceptance = httpx.get(f"{server.url}/dspark/status", timeout=30).json()["draft_context"]["acceptance"]
    buckets: list[dict[str, Any]] = acceptance["buckets"]
    return buckets


def test_acceptance_by_restored_tokens_adds_up_to_the_engines_own_counters(server: LiveServer) -> None:
    before = {bucket["restored_from"]: bucket["draft_steps"] for bucket in settled_buckets(server)}
    for number, text in enumerate(prompts()[4:8]):
        prompt = f"# {number} {time.time_ns()}\n{text}"  # begins as no prompt before
        server.complete(prompt)
        server.complete(prompt)  # a prefix hit

    buckets = settled_buckets(server)

    assert sums_of(buckets) == raw_counters(server.metrics())
    grown = {bucket["restored_from"] for bucket in buckets if bucket["draft_steps"] > before[bucket["restored_from"]]}
    assert 0 in grown
    assert grown - {0}


def test_the_same_counters_are_there_for_prometheus(server: LiveServer) -> None:
    server.complete(prompts()[9])
    buckets = settled_buckets(server)

    answer = httpx.get(f"{server.url}/dspark/metrics", timeout=30)

    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    steps = {
        sample.labels["restored_from"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "dspark_draft_acceptance_draft_steps_total"
    }
    assert steps == {str(bucket["restored_from"]): bucket["draft_steps"] for bucket in buckets}
    assert httpx.post(f"{server.url}/dspark/metrics", timeout=30).status_code == 405


def test_the_reports_have_what_the_server_told(server: LiveServer) -> None:
    for prompt in prompts()[10:18]:  # drafts enough for a report
        server.complete(prompt)
    profiled = tool_json("acceptance", "--url", server.url, "--json", "--fail-on", "never")
    asked = tool_json("doctor", "--url", server.url, "--json")

    by_restored = sum(each["profile"]["drafts"] for each in profiled["by_restored"])
    assert by_restored == profiled["profile"]["drafts"]
    assert asked["vllm"] == "0.32.0"
    assert {patch["name"] for patch in asked["patches"]} >= {patch.name for patch in PATCHES}
    (worker,) = asked["draft_context"]["workers"]
    assert worker["active"] or worker["inactive_reason"] or worker["policy"] != "off"


def test_the_route_only_reads(server: LiveServer) -> None:
    url = f"{server.url}/dspark/status"

    assert {httpx.request(method, url).status_code for method in ("POST", "PUT", "PATCH", "DELETE")} == {405}
    assert httpx.get(url).headers["content-type"] == "application/json"


def test_other_plugins_were_not_switched_off(server: LiveServer) -> None:
    done = subprocess.run(
        [TOOL, "serve", str(TARGET), "--draft", str(DFLASH), "--status", "--dry-run"],
        capture_output=True,
        text=True,
        env=offline_environment(),
    )

    found = re.search(r"VLLM_PLUGINS=(\S+)", done.stdout)
    assert found is not None
    assert {"lora_filesystem_resolver", "lora_hf_hub_resolver", "dspark_status"} <= set(found[1].split(","))
    assert "Failed to load plugin" not in server.log.read_text()
