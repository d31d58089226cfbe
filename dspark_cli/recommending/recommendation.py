"""The settings to serve a target and its drafter with, each with its reason."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dspark_cli.findings.finding import Confidence, Finding, NotChecked


class Place(StrEnum):
    """Where a setting is given."""

    SPECULATIVE = "--speculative-config"
    VLLM = "vllm serve"
    TOOL = "dspark-tool serve"


@dataclass(frozen=True)
class Choice:
    """`setting` is a key of the speculative configuration, or an option with its dashes. `value` None leaves it to
    vLLM: then nothing is written, and the reason says what vLLM does. `source` says where the reason is from."""

    place: Place
    setting: str
    value: Any
    reason: str
    source: str
    confidence: Confidence
    by_user: bool = False


@dataclass(frozen=True)
class Recommendation:
    """`refused` are conflicts that make the start fail or drafts worthless, `traps` what the user's own flags or this
    release bring; `not_checked` what could not be looked at."""

    target: str
    drafter: str
    vllm: str
    device: str
    model_runner: str
    choices: tuple[Choice, ...]
    refused: tuple[Finding, ...]
    traps: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    speculative_config: dict[str, Any]
    vllm_args: tuple[str, ...]
    """The user's own, and behind them what was chosen; without the model and the speculative configuration."""
    tool_args: tuple[str, ...]
    """Of `dspark-tool serve`."""
