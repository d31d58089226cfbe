"""Series of vLLM's counters, as a time series database or a benchmark's collector holds them, sorted by engine."""

import math
import re
from collections.abc import Iterable, Mapping

from dspark_cli.errors import NotFit
from dspark_cli.sources.acceptance_metrics import (
    ACCEPTED,
    ACCEPTED_AT,
    DRAFT_TOKENS,
    DRAFTS,
    DRAFTS_BORN,
    LARGEST_COUNT,
    TRAFFIC,
)
from dspark_cli.sources.counter_history import EngineSamples, Values

METRICS = (
    DRAFTS,
    DRAFT_TOKENS,
    ACCEPTED,
    ACCEPTED_AT,
    DRAFTS_BORN,
    *(name for names in TRAFFIC.values() for name in names),
)
"""All that is read."""

LONGEST_LABEL = 200
MOST_POSITIONS = 1024
LATEST = 1e11
"""Seconds since 1970 in the year 5138; what is later is no time."""

_OF_ONE_SERIES = {"__name__", "position", "finished_reason"}

_Key = tuple[tuple[str, str], ...]
"""The labels that all series of one engine share."""


class CounterSeries:
    """Takes series in any order."""

    def __init__(self, next_step: str) -> None:
        """`next_step` is what the user can do where the samples are no counts."""
        self._next_step = next_step
        self._engines: dict[_Key, EngineSamples] = {}
        self._traffic: dict[tuple[_Key, str], dict[str, Values]] = {}
        self._not_a_number = 0
        self.saw_vllm = False

    def take(self, name: str, labels: Mapping[str, str], values: Iterable[tuple[float, float]]) -> None:
        """The values of the metric `name`, by time in seconds since 1970; the label `instance` says where it is.

        Raises:
            NotFit: a sample is no count, or a series is there twice.
        """
        self.saw_vllm |= name.startswith("vllm:")
        if name not in METRICS:
            return
        key = tuple(sorted((label, value) for label, value in labels.items() if label not in _OF_ONE_SERIES))
        numbers = self._numbers(values)
        if name == DRAFTS_BORN:
            self._engine(key, labels).born.update((at, value) for at, value in numbers if math.isfinite(value))
        elif name in (DRAFTS, DRAFT_TOKENS, ACCEPTED, ACCEPTED_AT):
            self._enter(self._counter(self._engine(key, labels), name, labels), name, numbers)
        elif all(_is_count(value) for _, value in numbers):
            reason = labels.get("finished_reason", "")
            self._traffic.setdefault((key, name), {})[reason] = {at: int(value) for at, value in numbers}

    def engines(self) -> list[EngineSamples]:
        """Those that speculate."""
        found = {key: engine for key, engine in self._engines.items() if engine.drafts}
        for key, engine in found.items():
            for field, names in TRAFFIC.items():
                there = next((self._traffic[key, name] for name in names if (key, name) in self._traffic), {})
                engine.traffic[field] = list(there.values())
        _name_apart(found)
        return list(found.values())

    @property
    def notes(self) -> list[str]:
        return [f"{self._not_a_number} samples are left out: they are NaN"] if self._not_a_number else []

    def _engine(self, key: _Key, labels: Mapping[str, str]) -> EngineSamples:
        if key not in self._engines:
            names = (labels.get("instance", ""), labels.get("model_name", ""), labels.get("engine", "0"))
            where, model, engine = (name[:LONGEST_LABEL] for name in names)
            self._engines[key] = EngineSamples(where or "an unnamed instance", model, engine)
        return self._engines[key]

    def _numbers(self, values: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        numbers = list(values)
        if not all(0 <= at <= LATEST for at, _ in numbers):
            raise self._unusable("a sample has no time")
        there = [(at, value) for at, value in numbers if not math.isnan(value)]
        self._not_a_number += len(numbers) - len(there)
        return there

    def _counter(self, engine: EngineSamples, name: str, labels: Mapping[str, str]) -> Values:
        if name == ACCEPTED_AT:
            position = labels.get("position", "")
            if not re.fullmatch("[0-9]{1,4}", position) or int(position) >= MOST_POSITIONS:
                raise self._unusable(f"{ACCEPTED_AT} has position {position[:20]!r}")
            return engine.accepted_at.setdefault(int(position), {})
        return {DRAFTS: engine.drafts, DRAFT_TOKENS: engine.draft_tokens, ACCEPTED: engine.accepted}[name]

    def _enter(self, counter: Values, name: str, numbers: Iterable[tuple[float, float]]) -> None:
        if counter:
            raise self._unusable(f"{name} is there twice for one engine")
        for at, value in numbers:
            if not _is_count(value):
                raise self._unusable(f"{name} is {value:g}, not a count")
            counter[at] = int(value)

    def _unusable(self, why: str) -> NotFit:
        return NotFit(f"the samples cannot be used: {why}", self._next_step)


def _name_apart(engines: Mapping[_Key, EngineSamples]) -> None:
    """Engines that share instance, model and index are named by the labels that differ, such as their job."""
    alike: dict[tuple[str, str, str], list[_Key]] = {}
    for key, engine in engines.items():
        alike.setdefault((engine.where, engine.model, engine.engine), []).append(key)
    for keys in alike.values():
        shared = set(keys[0]).intersection(*keys[1:])
        for key in keys:
            if differing := ", ".join(f"{label}={value}" for label, value in key if (label, value) not in shared):
                engines[key].where += f" ({differing[:LONGEST_LABEL]})"


def _is_count(value: float) -> bool:
    return 0 <= value <= LARGEST_COUNT and value == int(value)
