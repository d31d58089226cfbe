"""What `vllm bench serve` writes with --save-result or --append-result: the difference of two scrapes of /metrics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dspark_cli.errors import CannotSay, NotFit
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind, TrendPoint
from dspark_cli.facts.traffic import Traffic
from dspark_cli.facts.trend import Trend
from dspark_cli.sources.bench_results.counts import (
    LARGEST_COUNT,
    MOST_POSITIONS,
    count,
    cut_short,
    name_in,
    plausible,
    seconds,
    shortened,
    unusable,
)
from dspark_cli.sources.bench_results.documents import Documents

TOOL = "vllm bench serve"
WRITTEN_BY_EVERY_RELEASE = {"model_id", "tokenizer_id", "completed"}
AGREES = 1e-2
"""Relative difference within which a rate and the counts that it follows from agree, where someone rounded it."""


def read_vllm_serve(documents: Documents, content: bytes, name: str) -> Recording | None:
    """None where it is no such file.

    Raises:
        CannotSay: no run in it made a draft step.
        NotFit: cut short, or its figures contradict each other.
    """
    objects = [each for each in documents.objects if each.keys() >= WRITTEN_BY_EVERY_RELEASE]
    if not objects and not _looks_like_one(content, documents):
        return None
    if documents.broken:
        raise cut_short(TOOL)
    runs = [(number, _run(each)) for number, each in enumerate(objects, start=1)]
    drafting = [(number, run) for number, run in runs if run.counted is not None]
    if not drafting:
        raise CannotSay(
            f"this result of {TOOL} has no speculative figures: the server drafted nothing, or its /metrics was not "
            "where the benchmark looked",
            "start the server with a drafter, and give the benchmark its --base-url",
        )
    return _recording(drafting, len(runs), name)


@dataclass(frozen=True)
class _Run:
    model: str
    seconds: float | None
    counted: DraftCounters | None
    """None where the result has no speculative figures."""
    exact: bool
    traffic: Traffic


def _looks_like_one(content: bytes, documents: Documents) -> bool:
    return documents.broken and all(f'"{key}"'.encode() in content for key in ("model_id", "tokenizer_id"))


def _run(result: dict[str, Any]) -> _Run:
    counted, exact = _counted(result) if result.get("spec_decode_num_drafts") is not None else (None, True)
    return _Run(
        model=name_in(result["model_id"]),
        seconds=seconds(result.get("duration")),
        counted=counted if counted and counted.drafts else None,
        exact=exact,
        traffic=Traffic(finished_requests=count(result["completed"], "completed")),
    )


def _counted(result: dict[str, Any]) -> tuple[DraftCounters, bool]:
    """The counts, and whether those by position are exact."""
    drafts, draft_tokens, accepted = (
        _difference(result.get(f"spec_decode_{name}"), name)
        for name in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    rates = result.get("spec_decode_per_position_acceptance_rates") or []
    if not isinstance(rates, list) or len(rates) > MOST_POSITIONS:
        raise unusable(f"its per-position acceptance rates are {shortened(rates)}")
    accepted_at = tuple(_accepted_at(rate, drafts) for rate in rates)
    exact = all(drafts == 0 or here / drafts == rate for here, rate in zip(accepted_at, rates, strict=True))
    if exact and rates and sum(accepted_at) != accepted:
        raise unusable(f"{sum(accepted_at)} tokens are accepted by position, {accepted} in all")
    counted = plausible(DraftCounters(drafts, draft_tokens, accepted, accepted_at))
    _agrees("acceptance_rate", result, 100 * accepted / draft_tokens if draft_tokens else None)
    _agrees("acceptance_length", result, 1 + accepted / drafts if drafts else None)
    return counted, exact


def _difference(value: object, what: str) -> int:
    if isinstance(value, int | float) and value < 0:
        raise NotFit(
            f"the result file cannot be used: its {what} is below zero, so the server was restarted meanwhile",
            "run the benchmark again",
        )
    return count(value, f"spec_decode_{what}")


def _accepted_at(rate: object, drafts: int) -> int:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise unusable(f"an acceptance rate by position is {shortened(rate)}")
    return round(rate * drafts)


def _agrees(what: str, result: dict[str, Any], worked_out: float | None) -> None:
    said = result.get(f"spec_decode_{what}")
    if said is None or worked_out is None:
        return
    if (
        not isinstance(said, int | float)
        or not said < LARGEST_COUNT
        or not math.isclose(said, worked_out, rel_tol=AGREES, abs_tol=AGREES)
    ):
        raise unusable(f"its spec_decode_{what} is {shortened(said)}, but its counts give {worked_out:.4g}")


def _recording(drafting: Sequence[tuple[int, _Run]], runs: int, name: str) -> Recording:
    exact = all(run.exact for _, run in drafting)
    known = [run.seconds for _, run in drafting if run.seconds is not None]
    notes = ["all engines of the server together, and what other clients had it draft meanwhile"]
    if len(drafting) < runs:
        notes.append(f"{runs - len(drafting)} of {runs} runs are left out: they have no speculative figures")
    trend = Trend()
    for _, run in drafting:
        trend.add(TrendPoint(None, run.seconds, run.counted or DraftCounters(0, 0, 0, ()), run.traffic))
    return Recording(
        SourceKind.BENCHMARK,
        (name,),
        seconds=sum(known) if len(known) == len(drafting) else None,
        parts=tuple(
            EnginePart(f"{name} run {number}" if runs > 1 else name, run.model, "all", run.counted, run.traffic)
            for number, run in drafting
            if run.counted is not None
        ),
        trend=trend.points if len(drafting) > 1 else (),
        exact=exact,
        notes=tuple(notes),
    )
