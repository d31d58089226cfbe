"""Which number of draft tokens is best at which load, and whether it beats no speculation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dspark_cli.facts.measured_profile import BestCount
from dspark_cli.facts.tuning import NO_BOUND, Candidate, Drift, LatencyBound, Measurement
from dspark_cli.tuning.comparing import FEWEST_REQUESTS, Ratio, goodput_ratio
from dspark_cli.tuning.plan import Measured, TuningPlan

FEWEST_STEPS = 100
"""Draft steps, below which acceptance is a matter of a few prompts."""


class Pays(StrEnum):
    YES = "pays"
    NO = "does not pay"
    TOO_CLOSE = "too close to say"
    TOO_LITTLE = "too little data"
    NO_BASE = "nothing to compare with"
    NOTHING = "no request met the bound"
    TOO_FEW = "too few requests met the bound"


@dataclass(frozen=True)
class LoadVerdict:
    """At one concurrency. `best` is the best measured number of tokens, `base` no speculation; `ratio` is their
    goodputs', widened by what the machine varied. `as_good` are other numbers that cannot be told from the best."""

    concurrency: int
    pays: Pays
    best: Measurement
    base: Measurement | None
    ratio: Ratio | None
    drift: float | None
    as_good: tuple[int, ...]

    def best_count(self, bound: LatencyBound) -> BestCount | None:
        """None where no request met the bound: then no number is better than another."""
        base = self.base.goodput(bound) if self.base else None
        if not (base or self.best.goodput(bound)):
            return None
        off = base is not None and base > self.best.goodput(bound)
        return BestCount(
            concurrency=self.concurrency,
            tokens=0 if off else self.best.candidate.tokens,
            goodput=base if off and base is not None else self.best.goodput(bound),
            goodput_without_speculation=base,
            certain=self.pays in (Pays.YES, Pays.NO),
        )


def drifts(plan: TuningPlan, measured: Measured) -> tuple[Drift, ...]:
    """What no speculation changed by from its first to its second measurement."""
    found = []
    for candidate in plan.without_speculation[:1]:
        for concurrency in plan.concurrencies:
            first = measured.get((candidate, concurrency, False))
            again = measured.get((candidate, concurrency, True))
            if first and again:
                bound = plan.bound if first.goodput(plan.bound) else NO_BOUND
                found.append(Drift(concurrency, again.goodput(bound) / first.goodput(bound) - 1))
    return tuple(found)


def best_also(plan: TuningPlan, measured: Measured) -> str | None:
    """The value of the one more setting whose best numbers of tokens do best over all loads (geometric mean)."""
    return _best_value(plan, measured, speculates=True)


def best_also_without_speculation(plan: TuningPlan, measured: Measured) -> str | None:
    """The same of no speculation; None where the setting does not change it."""
    return _best_value(plan, measured, speculates=False)


def _best_value(plan: TuningPlan, measured: Measured, speculates: bool) -> str | None:
    """A value with which more loads meet the bound is better, whatever it serves at the others."""
    scores: dict[str, tuple[int, float]] = {}
    asked = [each for each in plan.candidates if each.speculates is speculates and each.also is not None]
    for also in dict.fromkeys(each.also for each in asked if each.also is not None):
        of_value = [each for each in asked if each.also == also]
        best = [_best(of_value, plan, measured, concurrency) for concurrency in plan.concurrencies]
        goods = [good for each in best if each is not None and (good := each.goodput(plan.bound))]
        if goods:
            scores[also] = len(goods), sum(map(math.log, goods))
    return max(scores, key=lambda also: scores[also]) if scores else None


def verdicts(plan: TuningPlan, measured: Measured) -> tuple[LoadVerdict, ...]:
    """Of each concurrency at which a candidate that speculates was measured."""
    also = best_also(plan, measured)
    speculating = [each for each in plan.candidates if each.speculates and also in (None, each.also)]
    changed = {drift.concurrency: drift.share for drift in drifts(plan, measured)}
    found = []
    for concurrency in plan.concurrencies:
        best = _best(speculating, plan, measured, concurrency)
        if best is not None:
            found.append(_verdict(plan, measured, best, changed.get(concurrency)))
    return tuple(found)


def _verdict(plan: TuningPlan, measured: Measured, best: Measurement, drift: float | None) -> LoadVerdict:
    bound, at = plan.bound, best.concurrency
    base = _best(plan.without_speculation, plan, measured, at)
    ratio = goodput_ratio(best, base, bound) if base else None
    ratio = ratio.widened(drift or 0.0) if ratio else None
    return LoadVerdict(
        at, _pays(best, base, ratio, bound), best, base, ratio, drift, _as_good(plan, measured, best, drift)
    )


def _pays(best: Measurement, base: Measurement | None, ratio: Ratio | None, bound: LatencyBound) -> Pays:
    if base is None:
        return Pays.NO_BASE
    if min(len(best.requests), len(base.requests)) < FEWEST_REQUESTS or best.draft_steps < FEWEST_STEPS:
        return Pays.TOO_LITTLE
    if not best.goodput(bound) and not base.goodput(bound):
        return Pays.NOTHING
    if ratio is None or (ratio.low, ratio.high) == (0.0, math.inf):
        return Pays.TOO_FEW if bound.given else Pays.TOO_LITTLE
    if ratio.low > 1:
        return Pays.YES
    return Pays.NO if ratio.high < 1 else Pays.TOO_CLOSE


def _best(
    candidates: Sequence[Candidate], plan: TuningPlan, measured: Measured, concurrency: int
) -> Measurement | None:
    known = [each for candidate in candidates if (each := measured.get((candidate, concurrency, False)))]
    return max(known, key=lambda each: each.goodput(plan.bound), default=None)


def _as_good(plan: TuningPlan, measured: Measured, best: Measurement, drift: float | None) -> tuple[int, ...]:
    """Numbers of tokens whose goodput the best one's does not surely exceed, requests and machine considered."""
    found = []
    for each in _speculating(plan, measured, best.concurrency):
        if each is best or each.candidate.also != best.candidate.also:
            continue
        ratio = goodput_ratio(best, each, plan.bound)
        if ratio is not None and ratio.widened(drift or 0.0).low <= 1:
            found.append(each.candidate.tokens)
    return tuple(sorted(found))


def _speculating(plan: TuningPlan, measured: Measured, concurrency: int) -> Sequence[Measurement]:
    keys = ((each, concurrency, False) for each in plan.candidates if each.speculates)
    return [known for key in keys if (known := measured.get(key))]
