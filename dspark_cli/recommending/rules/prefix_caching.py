"""Prefix caching and what the drafter sees of restored tokens."""

from collections.abc import Iterator

from dspark_cli.draft_context.policy import Policy
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import of_tool, of_vllm
from dspark_cli.recommending.situation import CONNECTOR, Situation

OPTION = "--enable-prefix-caching"
CHECKING_CONNECTORS = ("NixlConnector", "UMBPConnector")
"""They refuse a peer whose drafter differs."""


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    checked = situation.policy != Policy.OFF
    yield of_vllm(
        OPTION,
        None,
        "left on: plain prefix hits bring back the KV that the drafter wrote"
        + (", and what it did not write is hidden from it" if checked else ""),
        "measured by this project: 98 to 101% of the accepted drafts are kept (H200, vLLM 0.33; CPU, 0.32)",
        Confidence.CERTAIN,
    )
    if checked:
        yield of_tool(
            "--draft-context",
            situation.policy,
            "a restored row counts where it is what this drafter wrote for that text",
            "measured by this project: stale context costs 35 to 39% of the acceptance length in stock vLLM, 0 to 3%"
            " with it",
            Confidence.CERTAIN,
        )
    yield from _caching_off(situation)
    yield from _connector(situation, checked)


def _caching_off(situation: Situation) -> Iterator[Finding]:
    if situation.options.is_on(OPTION) is not False:
        return
    prefix = situation.workload.shared_prefix
    shared = f"; your prompts share {prefix:,} tokens, each of them prefilled again" if prefix else ""
    yield Finding(
        "prefix-caching-off",
        Severity.WARNING,
        f"prefix caching is off, which drafters of this kind do not need{shared}",
        {"shared_prefix": prefix},
        "leave --no-enable-prefix-caching out; if drafts were bad with it: dspark-tool probe --url URL",
        source="measured by this project; see docs/draft-context.md",
        confidence=Confidence.LIKELY,
    )


def _connector(situation: Situation, checked: bool) -> Iterator[Finding]:
    connector = situation.options.text(CONNECTOR)
    if connector is None or checked or any(name in connector for name in CHECKING_CONNECTORS):
        return
    yield Finding(
        "connector-without-check",
        Severity.WARNING,
        "a KV connector may restore the target's KV without the drafter's, and nothing checks it here",
        {},
        "--draft-context validity hides what the drafter did not write",
        source="only NIXL and UMBP compare the drafter of both sides (read in vLLM 0.33)",
        confidence=Confidence.LIKELY,
    )
