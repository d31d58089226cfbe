"""What a tune concludes: pays or not, the best number, the schedule; and near misses that must not be concluded."""

import dataclasses
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.facts.tuning import NO_BOUND, Candidate, FailedCandidate, LatencyBound, Measurement, TuningReport
from dspark_cli.tuning.candidates import all_candidates, parse_also
from dspark_cli.tuning.plan import TuningPlan
from dspark_cli.tuning.report_on import HowItEnded, profile_of, report_on_tuning
from dspark_cli.tuning.schedule import batch_size_schedule, max_num_seqs
from dspark_cli.tuning.verdict import Pays, verdicts
from tests.cheap_tune import QUESTION
from tests.measurements import measurement

TOKENS = (1, 4, 7)
Held = dict[tuple[Candidate, int, bool], Measurement]


def plan_of(concurrencies: tuple[int, ...] = (1,), tokens: tuple[int, ...] = TOKENS, **more: Any) -> TuningPlan:
    return TuningPlan(
        all_candidates(tokens, more.pop("also", None)), concurrencies, more.pop("bound", NO_BOUND), **more
    )


def held(*measurements: Measurement) -> Held:
    return {each.key: each for each in measurements}


def ids(report: TuningReport) -> set[str]:
    return {finding.id for finding in report.findings}


def report_of(plan: TuningPlan, measured: Held, **question: Any) -> TuningReport:
    asked = dataclasses.replace(QUESTION, **question)
    return report_on_tuning(asked, plan, None, measured, HowItEnded("results.jsonl"))


def test_speculation_that_pays_is_told_with_its_figures() -> None:
    measured = held(measurement(0), *(measurement(tokens) for tokens in TOKENS))

    report = report_of(plan_of(), measured)

    assert "speculation-pays" in ids(report)
    assert report.best[0].tokens == 4
    assert report.best[0].certain
    assert report.serve == "dspark-tool serve target --draft drafter --tokens 4"
    assert report.recommend == "dspark-tool recommend target --draft drafter --profile results.jsonl"


def test_speculation_that_costs_more_than_it_brings_is_told() -> None:
    measured = held(measurement(0), *(measurement(tokens, token_s=0.02) for tokens in TOKENS))

    report = report_of(plan_of(), measured)

    assert "speculation-does-not-pay" in ids(report)
    assert report.best[0].tokens == 0
    assert report.best[0].certain
    assert report.serve == "vllm serve target"


ROUGH = (0.5, 1.5, 0.8, 1.3, 0.6, 1.4, 1.1, 0.9)


@pytest.mark.parametrize("slower", [0.98, 1.0, 1.02])
def test_a_difference_within_what_requests_differ_by_is_too_close_to_say(slower: float) -> None:
    alike = measurement(1, step_s=0.017, token_s=0.0, wobble=ROUGH)
    base = measurement(0, step_s=0.010, wobble=tuple(reversed(ROUGH)), slower=slower)

    report = report_of(plan_of(tokens=(1,)), held(base, alike))

    assert "too-close-to-say" in ids(report)
    assert not report.best[0].certain


def test_a_gain_that_the_machine_itself_varied_by_is_too_close_to_say() -> None:
    faster = measurement(1, step_s=0.0155, token_s=0.0)
    calm = held(measurement(0), faster, measurement(0, control=True))
    restless = held(measurement(0), faster, measurement(0, control=True, slower=1.3))

    assert verdicts(plan_of(tokens=(1,)), calm)[0].pays is Pays.YES
    assert verdicts(plan_of(tokens=(1,)), restless)[0].pays is Pays.TOO_CLOSE
    assert "machine-varied" in ids(report_of(plan_of(tokens=(1,)), restless))
    assert "machine-varied" not in ids(report_of(plan_of(tokens=(1,)), calm))


@pytest.mark.parametrize("requests", [2, 7])
def test_a_few_requests_are_too_little_data(requests: int) -> None:
    measured = held(measurement(0, requests=requests), measurement(7, requests=requests))

    report = report_of(plan_of(), measured)

    assert not {"speculation-pays", "speculation-does-not-pay", "too-close-to-say"} & ids(report)
    assert any("too little data" in check.why for check in report.not_checked)
    assert not report.best[0].certain


def test_without_a_base_nothing_is_said_to_pay() -> None:
    report = report_of(plan_of(), held(measurement(7)))

    assert report.best[0].goodput_without_speculation is None
    assert not report.best[0].certain
    assert "speculation-pays" not in ids(report)


def test_goodput_judges_and_not_throughput() -> None:
    """The largest count gives most tokens, but no request of it comes within the bound."""
    rates = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
    slow_start = [
        dataclasses.replace(request, ttft_s=0.5, seconds=request.seconds + 0.45)
        for request in measurement(7, rates=rates).requests
    ]
    largest = dataclasses.replace(measurement(7, rates=rates, requests=24), requests=tuple(slow_start))
    measured = held(measurement(0), measurement(1, rates=rates), largest)

    free = report_of(plan_of(), measured)
    bound = report_of(plan_of(bound=LatencyBound(ttft_ms=100)), measured)

    assert free.best[0].tokens == 7
    assert bound.best[0].tokens == 1


def test_a_bound_that_nothing_meets_is_told() -> None:
    measured = held(measurement(0), measurement(1), measurement(7))

    report = report_of(plan_of(bound=LatencyBound(tpot_ms=0.001)), measured)

    assert "bound-never-met" in ids(report)
    assert "the lowest median was TPOT" in report.findings[0].what
    assert report.best == ()
    assert report.serve is None
    profile = profile_of(report, measured)
    assert profile is not None
    assert (profile.best, profile.tpot_ms) == ((), 0.001)


def test_a_bound_that_one_load_meets_gives_a_best_number_for_that_load_alone() -> None:
    plan = plan_of((1, 2), bound=LatencyBound(tpot_ms=9))
    measured = held(*(measurement(tokens, at, step_s=0.01 * at) for tokens in (0, 1, 7) for at in (1, 2)))

    report = report_of(plan, measured)

    assert [best.concurrency for best in report.best] == [1]
    assert report.schedule is None
    assert report.serve == "dspark-tool serve target --draft drafter --tokens 7"
    assert "at fewer than two loads a request met the latency bound" in {each.why for each in report.not_checked}


def within(measured: Measurement, met: int, tpot_ms: float) -> Measurement:
    """`measured`, with `met` of its requests at half that time per token and the others at twice."""
    requests = tuple(
        dataclasses.replace(
            each, seconds=each.ttft_s + (each.output_tokens - 1) * tpot_ms / 1000 * (0.5 if number < met else 2)
        )
        for number, each in enumerate(measured.requests)
    )
    return dataclasses.replace(measured, requests=requests, seconds=sum(each.seconds for each in requests))


@pytest.mark.parametrize(
    ("with_drafts", "without", "said"),
    [
        (1, 3, "too few requests met the bound at one request at a time to compare (1 of 24 with 4 tokens, 3 of 24"),
        (0, 2, "(0 of 24 with 4 tokens, 2 of 24 with no speculation)"),
        (2, 0, "(2 of 24 with 4 tokens, 0 of 24 with no speculation)"),
        (0, 24, None),
        (24, 0, None),
        (12, 20, None),
    ],
)
def test_a_handful_of_requests_within_the_bound_does_not_compare(
    with_drafts: int, without: int, said: str | None
) -> None:
    plan = plan_of(tokens=(4,), bound=LatencyBound(tpot_ms=10))
    measured = held(within(measurement(0), without, 10), within(measurement(4), with_drafts, 10))

    report = report_of(plan, measured)

    told = [each.why for each in report.not_checked if each.id == "speculation-pays"]
    assert not any("too little data" in why for why in told)
    if said is None:
        assert not told
        assert {"speculation-pays", "speculation-does-not-pay", "too-close-to-say"} & ids(report)
    else:
        assert said in told[0]
    assert not report.best[0].certain or said is None


def test_what_the_machine_varied_is_judged_by_goodput_within_the_bound() -> None:
    """A third of the control's requests meet the bound, where twenty of twenty-four did."""
    plan = plan_of(tokens=(4,), bound=LatencyBound(tpot_ms=10))
    control = dataclasses.replace(within(measurement(0), 8, 10), control=True)
    first, drafts = within(measurement(0), 20, 10), within(measurement(4), 24, 10)

    alone = report_of(plan, held(first, drafts))
    report = report_of(plan, held(first, drafts, control))

    assert "speculation-pays" in ids(alone)
    assert report.drift[0].change < -0.6
    assert "speculation-pays" not in ids(report)


@pytest.mark.parametrize(("slower", "said"), [(2.0, "% less"), (0.5, "% more")])
def test_what_the_machine_varied_is_said_in_words(slower: float, said: str) -> None:
    measured = held(measurement(0), measurement(1), measurement(0, control=True, slower=slower))

    report = report_of(plan_of(), measured)

    varied = next(finding for finding in report.findings if finding.id == "machine-varied")
    assert f"{said} the second time" in varied.what


def test_numbers_that_cannot_be_told_from_the_best_are_named() -> None:
    measured = held(measurement(0), measurement(4, wobble=ROUGH), measurement(3, wobble=tuple(reversed(ROUGH))))

    report = report_of(plan_of(tokens=(3, 4)), measured)

    assert "as-good-as-the-best" in ids(report)


@pytest.mark.parametrize(
    ("name", "value", "finding"),
    [
        ("prefix_hit_rate", 0.5, "prefixes-were-restored"),
        ("other_requests", 3, "others-were-served"),
        ("failed", 2, "requests-failed"),
        ("used_by_others", 0.3, "machine-was-busy"),
    ],
)
def test_doubtful_measurements_are_told(name: str, value: float, finding: str) -> None:
    doubtful = dataclasses.replace(measurement(7), **{name: value})  # type: ignore[arg-type]
    sound = held(measurement(0), measurement(1), measurement(7))

    assert finding in ids(report_of(plan_of(), held(measurement(0), measurement(1), doubtful)))
    assert finding not in ids(report_of(plan_of(), sound))


def falling_load(concurrencies: tuple[int, ...]) -> Iterable[Measurement]:
    """Verifying a token costs time by the load: many are best alone, none at the largest load."""
    for at in concurrencies:
        for tokens in (0, 1, 2, 4, 7):
            yield measurement(tokens, at, token_s=0.0006 * at)


def test_the_schedule_falls_with_the_load_and_covers_every_batch_size() -> None:
    plan = plan_of((1, 8, 32), (1, 2, 4, 7))
    measured = held(*falling_load((1, 8, 32)))

    schedule = batch_size_schedule(plan, measured, ["--max-num-seqs", "64"])

    assert schedule is not None
    depths = [tokens for _, _, tokens in schedule]
    assert depths == sorted(depths, reverse=True)
    assert depths[-1] == 0
    assert schedule[0][0] == 1
    assert schedule[-1][1] == 64
    assert all(before[1] + 1 == after[0] for before, after in pairwise(schedule))
    report = report_of(plan, measured)
    assert "num_speculative_tokens_per_batch_size" in str(report.serve)
    assert "schedule" in ids(report)


@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=4, unique=True),
    st.lists(st.floats(0.0, 0.02), min_size=4, max_size=4),
    st.integers(1, 2000),
)
def test_any_schedule_is_one_that_vllm_takes(loads: list[int], costs: list[float], largest_batch: int) -> None:
    concurrencies = tuple(sorted(loads))
    measured = held(
        *(
            measurement(tokens, at, token_s=cost, requests=8)
            for at, cost in zip(concurrencies, costs, strict=False)
            for tokens in (0, 1, 4)
        )
    )

    schedule = batch_size_schedule(plan_of(concurrencies, (1, 4)), measured, [f"--max-num-seqs={largest_batch}"])

    if schedule is None:
        return
    assert schedule[0][0] == 1
    assert schedule[-1][1] == max(largest_batch, concurrencies[-1])
    assert all(begin <= end and tokens in (0, 1, 4) for begin, end, tokens in schedule)
    assert all(before[1] + 1 == after[0] for before, after in pairwise(schedule))
    assert all(before[2] != after[2] for before, after in pairwise(schedule))


def test_the_schedule_does_not_change_for_a_difference_that_is_not_shown() -> None:
    plan = plan_of((1, 2), (3, 4))
    measured = held(
        *(measurement(tokens, 1) for tokens in (0, 3)),
        measurement(4, 1, slower=1.5),
        measurement(0, 2),
        measurement(3, 2, wobble=ROUGH),
        measurement(4, 2, wobble=tuple(reversed(ROUGH)), slower=0.99),
    )

    assert batch_size_schedule(plan, measured, []) == ((1, 1024, 3),)


def test_the_boundary_is_where_the_two_numbers_are_as_good() -> None:
    plan = plan_of((1, 16), (4,))
    measured = held(
        measurement(0, 1), measurement(4, 1, slower=0.9), measurement(0, 16), measurement(4, 16, slower=2.5)
    )

    schedule = batch_size_schedule(plan, measured, [])

    assert schedule is not None
    assert [tokens for _, _, tokens in schedule] == [4, 0]
    assert 1 <= schedule[0][1] < 16


def test_one_load_or_no_speculation_makes_no_schedule() -> None:
    one = held(measurement(0), measurement(4))
    none = held(*(measurement(tokens, at, token_s=0.05) for at in (1, 2) for tokens in (0, 1, 4, 7)))

    assert batch_size_schedule(plan_of(), one, []) is None
    assert batch_size_schedule(plan_of((1, 2)), none, []) is None


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--max-num-seqs", "64"], 64),
        (["--max-num-seqs=64"], 64),
        (["--max_num_seqs", "64", "--max-num-seqs", "32"], 32),
        (["--max-num-seqs", "many"], None),
        (["--max-num-seqs"], None),
        ([], None),
    ],
)
def test_the_largest_batch_is_read_from_the_arguments(arguments: list[str], found: int | None) -> None:
    assert max_num_seqs(arguments) == found


def test_data_parallelism_disables_the_schedule_and_it_is_told() -> None:
    plan = plan_of((1, 8, 32), (1, 2, 4, 7))
    measured = held(*falling_load((1, 8, 32)))

    assert "schedule-is-disabled" in ids(report_of(plan, measured, vllm_args=("--data-parallel-size", "2")))
    assert "schedule-is-disabled" not in ids(report_of(plan, measured, vllm_args=("--data-parallel-size", "1")))


def test_one_more_setting_is_part_of_the_winner() -> None:
    also = parse_also("attention_backend=A,B")
    plan = plan_of(also=also, tokens=(1, 4))
    measured = held(
        measurement(0),
        *(measurement(tokens, also="A") for tokens in (1, 4)),
        *(measurement(tokens, also="B", slower=0.8) for tokens in (1, 4)),
    )

    report = report_on_tuning(QUESTION, plan, also, measured, HowItEnded("results.jsonl"))

    assert report.best_also == "B"
    assert json.loads(str(report.serve).partition("--speculative-config ")[2].strip("'")) == {"attention_backend": "B"}


def test_the_value_that_more_loads_meet_the_bound_with_is_the_better_one() -> None:
    """B is faster alone, and at two at a time no request of it meets the bound."""
    also = parse_also("attention_backend=A,B")
    plan = plan_of((1, 2), also=also, tokens=(4,), bound=LatencyBound(tpot_ms=6))
    of_b = {1: 0.8, 2: 2.0}
    measured = held(
        *(measurement(0, at) for at in (1, 2)),
        *(measurement(4, at, also=value, slower=of_b[at] if value == "B" else 1) for at in (1, 2) for value in "AB"),
    )

    report = report_on_tuning(QUESTION, plan, also, measured, HowItEnded("results.jsonl"))

    assert report.best_also == "A"
    assert [best.tokens for best in report.best] == [4, 4]


def test_no_speculation_is_served_with_its_own_best_value_and_recommended_with_it() -> None:
    """Drafts are fastest with B, no speculation with A, and A without speculation is the fastest of all."""
    also = parse_also("--max-num-batched-tokens=A,B")
    plan = plan_of(also=also, tokens=(1, 4))
    measured = held(
        measurement(0, also="A", slower=0.3),
        measurement(0, also="B"),
        *(measurement(tokens, also=value, slower=1.3 if value == "A" else 1) for tokens in (1, 4) for value in "AB"),
    )
    question = dataclasses.replace(QUESTION, vllm_args=("--speculative-config", '{"attention_backend": "X"}'))

    report = report_on_tuning(question, plan, also, measured, HowItEnded("results.jsonl"))

    assert report.best_also == "B"
    assert report.serve == "vllm serve target --max-num-batched-tokens A"
    assert report.recommend.endswith("--max-num-batched-tokens A")


def test_predictions_are_checked_against_what_they_did_not_know() -> None:
    everything = held(*(measurement(tokens) for tokens in range(8)))
    plan = plan_of(tokens=tuple(range(1, 8)))

    good = report_of(plan, everything)
    off = report_of(plan, everything | held(measurement(3, slower=1.5)))

    assert good.prediction.checked == off.prediction.checked == 4
    assert good.prediction.worst_error is not None
    assert good.prediction.worst_error < 0.05
    assert "prediction-held" in ids(good)
    assert "prediction-was-poor" in ids(off)


def test_the_profile_is_of_what_the_report_says() -> None:
    measured = held(measurement(0), measurement(4))
    report = report_of(plan_of(), measured)

    profile = profile_of(report, measured)

    assert profile is not None
    assert profile.best == report.best
    assert profile.measured_on == "2026-11-30"
    assert profile_of(report_of(plan_of(), {}), {}) is None


def test_candidates_that_failed_alike_are_one_finding() -> None:
    failed = tuple(
        FailedCandidate(Candidate(tokens, also), cause, f"read {tokens}.log")
        for tokens, also, cause in ((7, "X", "no such backend"), (1, "X", "no such backend"), (4, "Y", "no memory"))
    )

    report = report_on_tuning(QUESTION, plan_of(), None, held(measurement(0)), HowItEnded("results.jsonl", failed))

    told = [finding.what for finding in report.findings if finding.id == "candidate-failed"]
    assert told == ["7 tokens, X; 1 token, X: no such backend", "4 tokens, Y: no memory"]
