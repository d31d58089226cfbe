"""Short forms for what rules say."""

from typing import Any

from dspark_cli.findings.finding import Confidence
from dspark_cli.recommending.recommendation import Choice, Place

CHECKPOINT = "the drafter's config.json"
USER = "your own flag"


def speculative(key: str, value: Any, reason: str, source: str, confidence: Confidence) -> Choice:
    return Choice(Place.SPECULATIVE, key, value, reason, source, confidence)


def of_vllm(option: str, value: Any, reason: str, source: str, confidence: Confidence) -> Choice:
    return Choice(Place.VLLM, option, value, reason, source, confidence)


def of_tool(option: str, value: Any, reason: str, source: str, confidence: Confidence) -> Choice:
    return Choice(Place.TOOL, option, value, reason, source, confidence)
