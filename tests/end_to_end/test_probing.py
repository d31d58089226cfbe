"""`dspark-tool probe` beside a real vLLM: harmless where draft KV is good, harmful where it is not."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live_server import TOOL, LiveServer

pytestmark = pytest.mark.timeout(600)

SMALL = ("--prompt-count", "8", "--prompt-tokens", "700", "--output-tokens", "32", "--shares", "none")


def probe(server: LiveServer, *more: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [TOOL, "probe", "--url", server.url, *SMALL, *more, "--json"], capture_output=True, text=True, timeout=300
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


@pytest.fixture
def healed(server: LiveServer) -> Iterator[LiveServer]:
    yield server
    server.heal()
    server.treat_restored("validity")
    httpx.post(f"{server.url}/reset_prefix_cache", timeout=60).raise_for_status()


def test_good_prefix_hits_are_harmless_and_each_chunk_is_a_draft_step(healed: LiveServer) -> None:
    code, report = probe(healed)

    assert (code, report["verdict"]["verdict"]) == (0, "harmless")
    phases = {phase["name"]: phase for phase in report["phases"]}
    assert phases["cold"]["cached_tokens"] == 0
    assert phases["restored whole"]["cached_tokens"] > 0.5 * phases["restored whole"]["prompt_tokens"]
    assert all(phase["other_requests"] == 0 and phase["settled"] for phase in report["phases"])
    for phase in report["result"]["phases"]:
        counted = sum(part["counted"]["drafts"] for part in phase["recording"]["parts"])
        assert sum(request["draft_steps"] for request in phase["requests"]) == counted
    kept = report["comparisons"][0]
    assert kept["kept_low"] <= 1 <= kept["kept_high"] or kept["kept"] == pytest.approx(1, abs=0.1)


def test_stale_draft_context_is_harmful_and_position_0_only(healed: LiveServer) -> None:
    healed.treat_restored("off")
    healed.plant("stale-noise", 3.0)

    code, report = probe(healed)

    assert (code, report["verdict"]["verdict"]) == (1, "harmful")
    found = [finding["id"] for finding in report["findings"]]
    assert found[:2] == ["collapse-follows-cached-length", "position-0-only"]
    assert report["restored"]["mean_acceptance_length"] < 1.15 < 1.5 < report["cold"]["mean_acceptance_length"]
    beyond = [at["rate"] for at in report["restored"]["positions"][1:]]
    assert max(beyond) < 0.02


def test_the_reset_endpoint_makes_prompts_cold(healed: LiveServer) -> None:
    _, report = probe(healed, "--reset-prefix-cache")

    phases = {phase["name"]: phase for phase in report["phases"]}
    assert phases["cold again"]["cached_tokens"] == 0
    assert phases["restored whole"]["cached_tokens"] > 0
    assert report["result"]["freshness"] == "the reset endpoint"


def test_a_page_for_a_bug_report_holds_the_servers_figures(server: LiveServer, tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    subprocess.run([TOOL, "acceptance", "--url", server.url, "--html", str(page), "--fail-on", "never"], check=True)

    text = page.read_text()
    drafts = json.loads(
        subprocess.run([TOOL, "acceptance", "--url", server.url, "--json"], capture_output=True, text=True).stdout
    )["profile"]["drafts"]
    assert f"{drafts:,}" in text
    assert "http-equiv" in text
    assert "<script" not in text
