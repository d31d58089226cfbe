"""The report on a tune, from all that its results file holds."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dspark_cli.facts.measured_profile import BestCount, MeasuredProfile
from dspark_cli.facts.probe import percentile
from dspark_cli.facts.tuning import (
    Candidate,
    Checked,
    FailedCandidate,
    LatencyBound,
    Measurement,
    Percentiles,
    Prediction,
    PredictionQuality,
    Schedule,
    TunedRow,
    TuningQuestion,
    TuningReport,
)
from dspark_cli.findings.tuning.check import check_tuning
from dspark_cli.findings.tuning.evidence import TuningEvidence
from dspark_cli.serving.secrets import without_masked, without_secrets
from dspark_cli.serving.shell_words import shell_line
from dspark_cli.serving.speculative import take_speculative_config
from dspark_cli.tuning.block_length import BlockEffect, block_effect
from dspark_cli.tuning.candidates import Also
from dspark_cli.tuning.comparing import goodput_interval
from dspark_cli.tuning.plan import Measured, TuningPlan, models, predictions
from dspark_cli.tuning.prediction import CostModel, left_out
from dspark_cli.tuning.schedule import batch_size_schedule
from dspark_cli.tuning.verdict import best_also, best_also_without_speculation, drifts, verdicts

SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"
DAY = len("2026-11-30")


@dataclass(frozen=True)
class HowItEnded:
    results: str
    failed: tuple[FailedCandidate, ...] = ()
    interrupted: bool = False
    stopped: str | None = None
    measured: int = 0
    reused: int = 0
    seconds: float = 0.0


def report_on_tuning(
    question: TuningQuestion, plan: TuningPlan, also: Also | None, measured: Measured, ended: HowItEnded
) -> TuningReport:
    """Judge what was measured; `plan` says which of it is asked for."""
    failed = {each.candidate for each in ended.failed}
    known = models(plan, measured, failed)
    foreseen = predictions(plan, measured, failed)
    used = {id(each) for model in known.values() for each in model.measured}
    outside = tuple(_checked(foreseen, measured, used))
    middles = tuple(filter(None, map(left_out, known.values())))
    checked = outside or middles  # a middle one is foretold by fewer than others are
    rows = tuple(_rows(plan, measured, foreseen, used, (*outside, *middles)))
    judged = verdicts(plan, measured)
    schedule = batch_size_schedule(plan, measured, question.vllm_args)
    best = tuple(count for verdict in judged if (count := verdict.best_count(plan.bound)))
    drift = drifts(plan, measured)
    asked = tuple(_asked_for(plan, measured))
    found = check_tuning(
        TuningEvidence(
            question=question,
            bound=plan.bound,
            measurements=asked,
            verdicts=judged,
            checked=checked,
            effects=tuple(_effects(known, asked)),
            drifts=drift,
            failed=ended.failed,
            schedule=schedule,
            several_loads=len(judged) > 1,
        )
    )
    value = best_also(plan, measured)
    served = value if _deepest(best, schedule) else best_also_without_speculation(plan, measured)
    return TuningReport(
        question=question,
        bound=plan.bound,
        concurrencies=plan.concurrencies,
        results=ended.results,
        rows=rows,
        prediction=_quality(checked, plan, measured, failed),
        drift=drift,
        best=best,
        best_also=value,
        schedule=schedule,
        failed=ended.failed,
        findings=found.findings,
        not_checked=found.not_checked,
        interrupted=ended.interrupted,
        stopped=ended.stopped,
        recommend=_recommend(question, also, served, ended.results),
        serve=_serve(question, also, served, best, schedule),
        measured=ended.measured,
        reused=ended.reused,
        seconds=round(ended.seconds, 1),
    )


def profile_of(report: TuningReport, measured: Measured) -> MeasuredProfile | None:
    """For the results file, without a best number where no request met the bound; None where nothing that speculates
    was measured."""
    if not report.measured_drafts:
        return None
    question = report.question
    return MeasuredProfile(
        target=question.target,
        drafter=question.drafter,
        vllm=question.vllm,
        device=question.device,
        measured_on=max(each.measured_at for each in measured.values())[:DAY],
        best=report.best,
        schedule=report.schedule,
        ttft_ms=report.bound.ttft_ms,
        tpot_ms=report.bound.tpot_ms,
    )


def _rows(
    plan: TuningPlan,
    measured: Measured,
    foreseen: dict[tuple[Candidate, int], Prediction],
    used: set[int],
    checked: Sequence[Checked],
) -> Iterator[TunedRow]:
    """By concurrency, then by the one more setting as its values were given, then by tokens; those neither measured nor
    predicted are left out."""
    settings = list(dict.fromkeys(candidate.also for candidate in plan.candidates))
    candidates = sorted(plan.candidates, key=lambda each: (settings.index(each.also), each.tokens))
    foretold = {each.measured.key: each.prediction.goodput for each in checked}
    for concurrency in plan.concurrencies:
        for candidate in candidates:
            found = measured.get((candidate, concurrency, False))
            prediction = foreseen.get((candidate, concurrency))
            if found is not None:
                yield _measured_row(found, prediction, foretold.get(found.key), id(found) in used, plan.bound)
            elif prediction is not None:
                yield _predicted_row(prediction)


def _measured_row(
    found: Measurement, prediction: Prediction | None, foretold: float | None, used: bool, bound: LatencyBound
) -> TunedRow:
    interval = goodput_interval(found, bound)
    goodput = found.goodput(bound)
    return TunedRow(
        candidate=found.candidate,
        concurrency=found.concurrency,
        measured=True,
        used_to_predict=used,
        goodput=goodput,
        goodput_low=interval[0] if interval else None,
        goodput_high=interval[1] if interval else None,
        tokens_per_s=found.tokens_per_s,
        within_bound=sum(map(bound.met_by, found.requests)) / len(found.requests),
        predicted=prediction.goodput if prediction else None,
        foretold=foretold,
        prediction_error=foretold / goodput - 1 if foretold is not None and goodput else None,
        acceptance_length=found.acceptance_length,
        rates=found.rates,
        draft_steps=found.draft_steps,
        step_ms=1000 * found.step_s,
        tpot_ms=_percentiles([1000 * request.tpot_s for request in found.requests]),
        ttft_ms=_percentiles([1000 * request.ttft_s for request in found.requests]),
        requests=len(found.requests),
        failed=found.failed,
    )


def _predicted_row(prediction: Prediction) -> TunedRow:
    return TunedRow(
        candidate=prediction.candidate,
        concurrency=prediction.concurrency,
        measured=False,
        used_to_predict=False,
        goodput=None,
        goodput_low=None,
        goodput_high=None,
        tokens_per_s=None,
        within_bound=None,
        predicted=prediction.goodput,
        foretold=prediction.goodput,
        prediction_error=None,
        acceptance_length=prediction.acceptance_length,
        rates=(),
        draft_steps=0,
        step_ms=1000 * prediction.step_s,
        tpot_ms=None,
        ttft_ms=None,
        requests=0,
        failed=0,
    )


def _percentiles(values: Sequence[float]) -> Percentiles:
    return Percentiles(*(percentile(values, share) or 0.0 for share in (0.5, 0.9, 0.99)))


def _asked_for(plan: TuningPlan, measured: Measured) -> Iterator[Measurement]:
    """The file may hold more, of an earlier run that asked for it."""
    for (candidate, concurrency, _), each in measured.items():
        if candidate in plan.candidates and concurrency in plan.concurrencies:
            yield each


def _checked(
    foreseen: dict[tuple[Candidate, int], Prediction], measured: Measured, used: set[int]
) -> Iterator[Checked]:
    for (candidate, concurrency), prediction in foreseen.items():
        found = measured.get((candidate, concurrency, False))
        if found is not None and id(found) not in used:
            yield Checked(prediction, found)


def _effects(known: dict[tuple[int, str | None], CostModel], asked: Sequence[Measurement]) -> Iterator[BlockEffect]:
    for (concurrency, also), model in known.items():
        for each in asked:
            alike = each.concurrency == concurrency and each.candidate.also == also and not each.control
            if alike and each.candidate.speculates and each.candidate.tokens < model.largest.candidate.tokens:
                found = block_effect(model.largest, each)
                if found is not None:
                    yield found


def _quality(
    checked: Sequence[Checked], plan: TuningPlan, measured: Measured, failed: set[Candidate]
) -> PredictionQuality:
    errors = [abs(each.error) for each in checked]
    loads = [
        sum((each, concurrency, False) in measured for concurrency in plan.concurrencies)
        for each in plan.candidates
        if each not in failed
    ]
    return PredictionQuality(
        checked=len(errors),
        mean_error=fmean(errors) if errors else None,
        worst_error=max(errors) if errors else None,
        spared=loads.count(0),
        partly=sum(0 < count < len(plan.concurrencies) for count in loads),
    )


def _recommend(question: TuningQuestion, also: Also | None, value: str | None, results: str) -> str:
    words = ["dspark-tool", "recommend", question.target, "--draft", question.drafter, "--profile", results]
    arguments, config = _with_also(question, also, value)
    return shell_line([*words, *_after_dashes([*arguments, *_speculative(config)])])


def _serve(
    question: TuningQuestion, also: Also | None, value: str | None, best: Sequence[BestCount], schedule: Schedule | None
) -> str | None:
    if not best:
        return None
    arguments, config = _with_also(question, also, value)
    tokens = _deepest(best, schedule)
    if not tokens:
        return shell_line(["vllm", "serve", question.target, *take_speculative_config(arguments)[0]])
    if schedule is not None and len({depth for _, _, depth in schedule}) > 1:
        config[SCHEDULE_KEY] = [list(entry) for entry in schedule]
    words = ["dspark-tool", "serve", question.target, "--draft", question.drafter, "--tokens", str(tokens)]
    return shell_line([*words, *_after_dashes([*arguments, *_speculative(config)])])


def _deepest(best: Sequence[BestCount], schedule: Schedule | None) -> int:
    """num_speculative_tokens of the server for all loads; 0 where it does not speculate."""
    depths = [each.tokens for each in best] if schedule is None else [depth for _, _, depth in schedule]
    return max(depths, default=0)


def _with_also(question: TuningQuestion, also: Also | None, value: str | None) -> tuple[list[str], dict[str, Any]]:
    """vLLM's arguments with the best value of the one more setting, and what of it is speculative configuration."""
    arguments = without_masked(without_secrets(question.vllm_args))
    if also is None or value is None:
        return arguments, {}
    return [*arguments, *also.vllm_args(value)], also.speculative_config(value)


def _speculative(config: Mapping[str, Any]) -> list[str]:
    return ["--speculative-config", json.dumps(config)] if config else []


def _after_dashes(arguments: Sequence[str]) -> list[str]:
    return ["--", *arguments] if arguments else []
