"""Which server is measured next, and when enough is measured.

First those from which the others are predicted, and no speculation; then, of the others, those that by their prediction
may be the best; at the end no speculation once more, which tells how much the machine itself varies.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dspark_cli.facts.tuning import Candidate, LatencyBound, Measurement, Prediction
from dspark_cli.tuning.block_length import block_effect
from dspark_cli.tuning.candidates import groups, used_to_predict
from dspark_cli.tuning.comparing import goodput_interval
from dspark_cli.tuning.prediction import CostModel, cost_model, left_out

SMALLEST_TOLERANCE = 0.05
LARGEST_TOLERANCE = 0.5
SAFETY = 1.5
"""The next prediction may be worse than those that could be checked."""
WITH_BLOCK_EFFECT = 2.0

Measured = Mapping[tuple[Candidate, int, bool], Measurement]


@dataclass(frozen=True)
class TuningPlan:
    """`measure_all` leaves nothing to predictions; `control` repeats no speculation at the end."""

    candidates: tuple[Candidate, ...]
    concurrencies: tuple[int, ...]
    bound: LatencyBound
    measure_all: bool = False
    control: bool = True

    @property
    def without_speculation(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if not candidate.speculates)


@dataclass(frozen=True)
class Visit:
    """One server to start, and the loads to measure it under."""

    candidate: Candidate
    concurrencies: tuple[int, ...]
    control: bool = False


@dataclass(frozen=True)
class Outlook:
    """How many servers are still to be started: surely, and at most."""

    least: int
    most: int


def next_visit(plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]) -> Visit | None:
    """None when enough is measured."""
    failed = given_up(plan, measured, failed)
    for candidate in _wanted(plan, measured, failed):
        if missing := _missing(plan, candidate, measured):
            return Visit(candidate, missing)
    return _control(plan, measured, failed)


def given_up(plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]) -> AbstractSet[Candidate]:
    """Those that failed, and those that would: all numbers of tokens with a value of the one more setting of which none
    was measured, and the smallest and another failed. A larger number needs no less than the smallest."""
    known = {candidate for candidate, _, _ in measured}
    given = set(failed)
    for group in groups(plan.candidates).values():
        if group[0] in failed and len(failed & set(group)) > 1 and not known & set(group):
            given.update(group)
    return given


def outlook(plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]) -> Outlook:
    def unmeasured(candidates: Sequence[Candidate]) -> int:
        return sum(bool(_missing(plan, each, measured)) for each in candidates if each not in failed)

    failed = given_up(plan, measured, failed)
    control = 1 if plan.control and not any(key[2] for key in measured) and plan.without_speculation else 0
    most = unmeasured(plan.candidates)
    first = unmeasured(tuple(dict.fromkeys(_needed_first(plan, failed))))
    least = most if plan.measure_all else first or unmeasured(tuple(dict.fromkeys(_wanted(plan, measured, failed))))
    return Outlook(least + control, most + control)


def models(
    plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]
) -> dict[tuple[int, str | None], CostModel]:
    """The cost model of each concurrency and value of the one more setting, where there is one."""
    found = {}
    for concurrency in plan.concurrencies:
        for also, group in groups(plan.candidates).items():
            points = [measured.get((each, concurrency, False)) for each in used_to_predict(group, failed)]
            if model := cost_model([point for point in points if point is not None], plan.bound):
                found[concurrency, also] = model
    return found


def predictions(
    plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]
) -> dict[tuple[Candidate, int], Prediction]:
    """Of every candidate that speculates, measured or not, within the counts that the models cover."""
    left = _groups_left(plan, failed)
    return {
        (candidate, concurrency): model.predict(candidate)
        for (concurrency, also), model in models(plan, measured, failed).items()
        for candidate in left.get(also, ())
        if candidate.tokens <= model.largest.candidate.tokens
    }


def tolerance(model: CostModel, plan: TuningPlan, measured: Measured) -> float:
    """By how much (a share) a prediction of `model` may be wrong, as far as measurements show."""
    concurrency, also = model.largest.concurrency, model.largest.candidate.also
    middle = left_out(model)
    errors = [middle.error if middle else 0.0]
    effect = False
    for (candidate, at, control), each in measured.items():
        of_model = at == concurrency and candidate.also == also and candidate.speculates
        if control or not of_model or candidate not in plan.candidates:
            continue
        if each not in model.measured:
            errors.append(model.predict(candidate).tokens_per_s / each.tokens_per_s - 1)
        if each is not model.largest:
            found = block_effect(model.largest, each)
            effect = effect or (found is not None and found.shown)
    noise = goodput_interval(model.largest, plan.bound)
    goodput = model.largest.goodput(plan.bound)
    reach = (noise[1] - noise[0]) / 2 / goodput if noise and goodput else 0.0
    wide = max(SMALLEST_TOLERANCE, reach, SAFETY * max(map(abs, errors))) * (WITH_BLOCK_EFFECT if effect else 1.0)
    return min(LARGEST_TOLERANCE, wide)


def _wanted(plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]) -> Iterator[Candidate]:
    """In the order in which they tell most."""
    yield from _needed_first(plan, failed)
    if plan.measure_all:
        yield from (each for group in _groups_left(plan, failed).values() for each in group)
    else:
        yield from _may_be_best(plan, measured, failed)


def _needed_first(plan: TuningPlan, failed: AbstractSet[Candidate]) -> Iterator[Candidate]:
    """The largest number, no speculation, and what else predictions take."""
    first, *others = [_used_in_order(group, failed) for group in groups(plan.candidates).values()] or [()]
    yield from first[:1]
    yield from (each for each in plan.without_speculation if each not in failed)
    for used in (first, *others):
        yield from used


def _used_in_order(group: Sequence[Candidate], failed: AbstractSet[Candidate]) -> Sequence[Candidate]:
    """The largest number first, as it tells most; after a failure the smallest, which tells whether any starts."""
    used = used_to_predict(group, failed)
    return sorted(used) if failed & set(group) else used


def _may_be_best(plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]) -> Iterator[Candidate]:
    """Those whose prediction comes within its tolerance of the best, the best first; all where nothing predicts."""
    found = models(plan, measured, failed)
    left = _groups_left(plan, failed)
    for concurrency in plan.concurrencies:
        without = [
            known.goodput(plan.bound)
            for each in plan.without_speculation
            if (known := measured.get((each, concurrency, False)))
        ]
        may: list[tuple[float, float, Candidate]] = []
        reached = []
        for also, group in left.items():
            model = found.get((concurrency, also))
            if model is None:
                yield from group
                continue
            wide = tolerance(model, plan, measured)
            for candidate in group:
                known = measured.get((candidate, concurrency, False))
                if known is not None:
                    reached.append(known.goodput(plan.bound))
                elif candidate.tokens <= model.largest.candidate.tokens:
                    may.append((model.predict(candidate).goodput, wide, candidate))
        best = max([*reached, *(goodput for goodput, _, _ in may)], default=0.0)
        if not best:
            continue  # nothing meets the bound
        for goodput, wide, candidate in sorted(may, key=lambda each: -each[0]):
            hopeless = without and goodput * (1 + wide) < max(without)
            if goodput >= best * (1 - wide) and not hopeless:
                yield candidate


def _control(plan: TuningPlan, measured: Measured, failed: AbstractSet[Candidate]) -> Visit | None:
    plain = plan.without_speculation[:1]
    if not plan.control or not plain or plain[0] in failed:
        return None
    speculative = any(key[0].speculates for key in measured)
    repeatable = [at for at in plan.concurrencies if (plain[0], at, False) in measured]
    missing = tuple(at for at in repeatable if (plain[0], at, True) not in measured)
    return Visit(plain[0], missing, control=True) if speculative and missing else None


def _missing(plan: TuningPlan, candidate: Candidate, measured: Measured) -> tuple[int, ...]:
    return tuple(at for at in plan.concurrencies if (candidate, at, False) not in measured)


def _groups_left(plan: TuningPlan, failed: AbstractSet[Candidate]) -> dict[str | None, tuple[Candidate, ...]]:
    return groups(candidate for candidate in plan.candidates if candidate not in failed)
