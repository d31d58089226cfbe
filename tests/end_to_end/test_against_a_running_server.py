"""The commands beside a real vLLM: what they say equals what the engine reports."""

import json
import re
import subprocess
import threading
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.live_server import ENGINE_ARGS, TOOL, LiveServer, offline_environment, prompts
from tests.paths import DFLASH, TARGET

pytestmark = pytest.mark.timeout(600)


def tool_json(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=300, env=offline_environment())
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def raw_counters(page: str) -> dict[str, Any]:
    """Straight from the page's text, by other code than the tool's."""
    counts: dict[str, int] = {}
    for name, value in re.findall(r"^vllm:spec_decode_num_(\w+)_total\{[^}]*\} ([\d.e+]+)$", page, re.MULTILINE):
        counts[name] = counts.get(name, 0) + int(float(value))
    positions = re.findall(r'_per_pos_total\{.*position="(\d+)"\} ([\d.e+]+)$', page, re.MULTILINE)
    return {**counts, "positions": {int(at): int(float(value)) for at, value in positions}}


def cache_config(page: str) -> dict[str, str]:
    families = {family.name: family for family in text_string_to_metric_families(page)}
    labels: dict[str, str] = families["vllm:cache_config_info"].samples[0].labels
    return labels


def test_acceptance_since_start_equals_the_counters(server: LiveServer) -> None:
    raw = raw_counters(server.metrics())

    profile = tool_json("acceptance", "--url", server.url, "--json")["profile"]

    assert raw["drafts"] > 50
    assert (profile["drafts"], profile["draft_tokens"], profile["accepted"]) == (
        raw["drafts"],
        raw["draft_tokens"],
        raw["accepted_tokens"],
    )
    assert {at["position"]: at["accepted"] for at in profile["positions"]} == raw["positions"]
    assert profile["mean_acceptance_length"] == 1 + raw["accepted_tokens"] / raw["drafts"]
    assert all(at["rate"] == at["accepted"] / raw["drafts"] for at in profile["positions"])


def test_acceptance_over_an_interval_counts_only_what_happened_in_it(server: LiveServer) -> None:
    before = raw_counters(server.metrics())
    tool = subprocess.Popen(
        [TOOL, "acceptance", "--url", server.url, "--interval", "8", "--json"], stdout=subprocess.PIPE, text=True
    )
    request = threading.Timer(3, server.complete, [prompts()[10]])
    request.start()

    output, _ = tool.communicate(timeout=60)

    request.join()
    after, report = raw_counters(server.metrics()), json.loads(output)
    assert report["profile"]["drafts"] == after["drafts"] - before["drafts"] > 0
    assert report["profile"]["accepted"] == after["accepted_tokens"] - before["accepted_tokens"]
    assert report["recording"]["seconds"] >= 8
    assert report["since_start"]["drafts"] == after["drafts"]
    assert tool.returncode == 4  # one request is too little for a verdict


def test_an_idle_interval_cannot_say(server: LiveServer) -> None:
    done = subprocess.run(
        [TOOL, "acceptance", "--url", server.url, "--interval", "0.5", "--json"], capture_output=True, text=True
    )

    assert done.returncode == 4
    report = json.loads(done.stdout)
    assert report["profile"] is None
    assert [finding["id"] for finding in report["findings"]] == ["too-little-data"]


def test_inspect_cache_equals_the_engine(server: LiveServer) -> None:
    engine = cache_config(server.metrics())

    planned = tool_json("inspect-cache", "--model", str(TARGET), "--draft", str(DFLASH), "--json", *ENGINE_ARGS)
    plan = planned["plan"]

    assert plan["blocks"] == int(engine["num_gpu_blocks"])
    assert {group["block_tokens"] for group in plan["groups"]} == {int(engine["block_size"])}
    assert plan["kv_tokens"] == int(engine["kv_cache_size_tokens"])
    assert plan["full_sequences"] == float(engine["kv_cache_max_concurrency"])


def test_the_profile_reads_at_width_80(server: LiveServer) -> None:
    done = subprocess.run([TOOL, "acceptance", "--url", server.url], capture_output=True, text=True)

    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "mean acceptance length" in done.stdout
