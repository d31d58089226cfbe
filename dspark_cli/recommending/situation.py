"""Everything that a recommendation rests on, before any rule is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dspark_cli.facts.device import Device
from dspark_cli.facts.drafter import Drafter
from dspark_cli.facts.measured_profile import MeasuredProfile
from dspark_cli.facts.target import Target
from dspark_cli.patches.patch import Place as Runner
from dspark_cli.recommending.counted import CountedAcceptance
from dspark_cli.recommending.given_options import GivenOptions
from dspark_cli.recommending.measured import most_tokens
from dspark_cli.sources.checkpoint import Method

FIRST_KNOWN, LAST_KNOWN = (0, 26), (0, 33)
"""The releases whose sources the rules were read in."""

HYBRID_OFF = "--disable-hybrid-kv-cache-manager"
CONNECTOR = "--kv-transfer-config"
FOR_RECURRENT_TARGETS = 7
BUSY = 32
"""Requests at once from which on a count should be measured: the best one falls as load rises."""


class Goal(StrEnum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"


@dataclass(frozen=True)
class Workload:
    """What the user says about the traffic: requests at once, tokens that prompts share, what counts most."""

    concurrency: int | None = None
    shared_prefix: int | None = None
    goal: Goal | None = None

    @property
    def at_once(self) -> int | None:
        """Requests at once: those asked for, else one where a single answer's speed counts most."""
        return self.concurrency or (1 if self.goal is Goal.LATENCY else None)


@dataclass(frozen=True)
class InstalledVllm:
    """`release` is (0, 33); `fields` are the settings that its SpeculativeConfig has, and `drops_trailing_block`
    says whether its prefix hits lose their last block for a drafter of ours."""

    distribution: str
    version: str
    release: tuple[int, int]
    fields: frozenset[str]
    drops_trailing_block: bool
    unknown_architectures: frozenset[str] = frozenset()
    """Of the drafter's, those that its registry of models does not name."""

    @property
    def known(self) -> bool:
        return FIRST_KNOWN <= self.release <= LAST_KNOWN

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Situation:
    """`given` is the user's own speculative configuration, `options` the user's options of vLLM. `patches` has the
    patches that `dspark-tool serve` puts on or that are native, `policy` that of the draft context."""

    target: Target
    drafter: Drafter
    method_evidence: str
    device: Device
    vllm: InstalledVllm
    runner: Runner
    workload: Workload
    policy: str
    given: Mapping[str, Any] = field(default_factory=dict)
    options: GivenOptions = field(default_factory=lambda: GivenOptions([]))
    tokens_option: int | None = None
    """--tokens"""
    method_asked: bool = False
    method_of_checkpoint: Method | None = None
    """None where config.json does not tell."""
    mended: frozenset[str] = frozenset()
    profile: MeasuredProfile | None = None
    counted: CountedAcceptance | None = None
    connector_without_hybrid: str | None = None
    """The user's KV connector, where vLLM switches the hybrid KV cache manager off for it."""

    @property
    def hybrid_off(self) -> bool:
        asked = self.options.is_on(HYBRID_OFF)
        return asked is True or (asked is None and self.connector_without_hybrid is not None)

    @property
    def on_v1(self) -> bool:
        return self.runner is Runner.RUNNER_V1

    @property
    def draft_tokens(self) -> int | None:
        """As they will run: the user's, the measured or the trained ones; the most of a schedule."""
        for told in (self.given.get("num_speculative_tokens"), self.tokens_option):
            if isinstance(told, int):
                return told
        counted = self.counted.keep if self.counted and self.counted.says_how_many else None
        return most_tokens(self.profile, self.workload.at_once) or counted or self.tokens_without_figures

    @property
    def busy(self) -> bool:
        return self.workload.goal is Goal.THROUGHPUT or (self.workload.at_once or 0) >= BUSY

    @property
    def tokens_without_figures(self) -> int | None:
        """As trained, and fewer where a target keeps a state for each and many requests run."""
        trained = self.drafter.trained_tokens
        capped = trained is not None and self.target.recurrent and self.busy
        return min(trained, FOR_RECURRENT_TARGETS) if trained is not None and capped else trained
