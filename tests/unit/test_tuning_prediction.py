"""Predictions of a tune, and which servers they spare."""

import contextlib
import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput
from dspark_cli.facts.tuning import NO_BOUND, Candidate, LatencyBound, Measurement
from dspark_cli.tuning.block_length import block_effect
from dspark_cli.tuning.candidates import Also, all_candidates, parse_also, parse_counts, used_to_predict
from dspark_cli.tuning.plan import TuningPlan, Visit, next_visit, outlook, predictions
from dspark_cli.tuning.prediction import cost_model, left_out
from tests.measurements import RATES, measurement

TOKENS = tuple(range(1, 8))
PLAN = TuningPlan(all_candidates(TOKENS, None), (1,), NO_BOUND, control=False)
Held = dict[tuple[Candidate, int, bool], Measurement]


def held(measurements: Iterable[Measurement]) -> Held:
    return {each.key: each for each in measurements}


def visits(plan: TuningPlan, world: dict[tuple[Candidate, int], Measurement], failing: set[int]) -> list[int]:
    """The numbers of tokens that are measured, in order, where `world` tells what each measurement would give."""
    measured: Held = {}
    failed: set[Candidate] = set()
    order = []
    while (visit := next_visit(plan, measured, failed)) is not None:
        order.append(visit.candidate.tokens)
        if visit.candidate.tokens in failing:
            failed.add(visit.candidate)
            continue
        for concurrency in visit.concurrencies:
            found = world[visit.candidate, concurrency]
            measured[visit.candidate, concurrency, visit.control] = found
        assert len(order) < 100
    return order


def world_of(token_s: float = 0.001, concurrencies: tuple[int, ...] = (1,)) -> dict[tuple[Candidate, int], Measurement]:
    return {
        (Candidate(tokens), at): measurement(tokens, at, token_s=token_s * at)
        for tokens in (0, *TOKENS)
        for at in concurrencies
    }


def test_a_world_as_the_model_takes_it_is_predicted_to_the_percent() -> None:
    model = cost_model([measurement(tokens) for tokens in (1, 4, 7)], NO_BOUND)
    assert model is not None

    for tokens in TOKENS:
        foreseen, real = model.predict(Candidate(tokens)), measurement(tokens)
        assert foreseen.tokens_per_s == pytest.approx(real.tokens_per_s, rel=0.02)
        assert foreseen.acceptance_length == pytest.approx(real.acceptance_length, rel=0.02)
        assert foreseen.step_s == pytest.approx(real.step_s, rel=0.02)
    middle = left_out(model)
    assert middle is not None
    assert middle.measured.candidate.tokens == 4
    assert middle.error == pytest.approx(0.0, abs=0.02)


@given(st.floats(0.1, 10), st.floats(0.0, 2.0), st.lists(st.floats(0.0, 0.95), min_size=7, max_size=7))
def test_a_used_measurement_is_met_whatever_it_was(scale: float, token_share: float, falling: list[float]) -> None:
    rates = tuple(itertools.accumulate(falling, lambda before, here: before * here))
    points = [measurement(k, step_s=0.01 * scale, token_s=0.01 * scale * token_share, rates=rates) for k in (1, 4, 7)]
    model = cost_model(points, NO_BOUND)
    assert model is not None

    for point in points:
        assert model.predict(point.candidate).tokens_per_s == pytest.approx(point.tokens_per_s, rel=1e-6)
    assert all(model.predict(Candidate(tokens)).tokens_per_s > 0 for tokens in TOKENS)


def test_one_measured_count_predicts_nothing() -> None:
    assert cost_model([measurement(7)], NO_BOUND) is None


def test_goodput_is_predicted_by_the_share_of_requests_within_the_bound() -> None:
    bound = LatencyBound(tpot_ms=1000 * measurement(7).requests[0].tpot_s)
    model = cost_model([measurement(tokens) for tokens in (1, 4, 7)], bound)
    assert model is not None

    largest, smaller = model.predict(Candidate(7)), model.predict(Candidate(3))

    assert 0 < largest.goodput < largest.tokens_per_s
    assert smaller.goodput == smaller.tokens_per_s


def test_most_candidates_are_ruled_out_without_a_run() -> None:
    order = visits(PLAN, world_of(), failing=set())

    assert order[:4] == [7, 0, 1, 4]
    assert 6 not in order
    best = max(TOKENS, key=lambda tokens: measurement(tokens).tokens_per_s)
    assert best in order


def test_where_drafting_never_pays_no_more_than_the_first_are_measured() -> None:
    assert visits(PLAN, world_of(token_s=0.02), failing=set()) == [7, 0, 1, 4]


def test_all_measures_all() -> None:
    everything = TuningPlan(PLAN.candidates, (1,), NO_BOUND, measure_all=True, control=False)

    assert sorted(visits(everything, world_of(), failing=set())) == [0, *TOKENS]


def test_the_control_comes_last() -> None:
    plan = TuningPlan(PLAN.candidates, (1,), NO_BOUND)

    order = visits(plan, world_of(), failing=set())

    assert order[-1] == 0
    assert order.count(0) == 2


@pytest.mark.parametrize("failing", [{7}, {1}, {4}, {0}, {7, 6, 5}, set(TOKENS), {0, *TOKENS}])
def test_a_candidate_that_fails_is_replaced_and_the_plan_ends(failing: set[int]) -> None:
    order = visits(PLAN, world_of(), failing)

    assert len(order) == len(set(order))
    left = [tokens for tokens in TOKENS if tokens not in failing]
    if left:
        assert {left[0], left[-1]} <= set(order)


def test_only_the_missing_loads_of_a_server_are_measured() -> None:
    plan = TuningPlan(PLAN.candidates, (1, 4), NO_BOUND, control=False)

    assert next_visit(plan, held([measurement(7, 1)]), set()) == Visit(Candidate(7), (4,))


def test_a_prediction_that_failed_makes_it_measure_more() -> None:
    world = world_of()
    world[Candidate(4), 1] = measurement(4, slower=1.6)  # the middle one is not on the line

    assert len(visits(PLAN, world, set())) > len(visits(PLAN, world_of(), set()))


def test_the_outlook_holds_what_then_happens() -> None:
    before = outlook(PLAN, {}, set())

    assert before.least <= len(visits(PLAN, world_of(), set())) <= before.most
    assert outlook(PLAN, held(world_of().values()), set()).most == 0


def test_nothing_is_predicted_beyond_the_largest_measured_count() -> None:
    measured = held(measurement(tokens) for tokens in (1, 4))

    assert {candidate.tokens for candidate, _ in predictions(PLAN, measured, {Candidate(7)})} <= {1, 2, 3, 4}


@pytest.mark.parametrize(("first_rate", "shown"), [(0.7, False), (0.68, False), (0.6, True), (0.8, True)])
def test_a_block_whose_length_changes_acceptance_is_noticed_and_chance_is_not(first_rate: float, shown: bool) -> None:
    found = block_effect(measurement(7), measurement(1, rates=(first_rate,)))

    assert found is not None
    assert found.shown is shown


def test_a_small_difference_of_many_steps_does_not_matter() -> None:
    many = 2000
    found = block_effect(measurement(7, requests=many), measurement(1, rates=(0.72,), requests=many))

    assert found is not None
    assert not found.shown


def test_the_counts_used_to_predict_are_the_ends_and_the_middle() -> None:
    group = [Candidate(tokens) for tokens in TOKENS]

    assert [each.tokens for each in used_to_predict(group)] == [7, 1, 4]
    assert [each.tokens for each in used_to_predict(group[:1])] == [1]
    assert used_to_predict([]) == ()


@pytest.mark.parametrize(
    ("text", "counts"), [("1-7", TOKENS), ("4,1,2,2", (1, 2, 4)), (" 3 - 4 ,1", (1, 3, 4)), ("64", (64,))]
)
def test_counts_are_read(text: str, counts: tuple[int, ...]) -> None:
    assert parse_counts(text, "--tokens", 64) == counts


@given(st.text(max_size=12))
def test_any_text_is_counts_or_is_refused(text: str) -> None:
    counts: tuple[int, ...] = ()
    with contextlib.suppress(BadInput):
        counts = parse_counts(text, "--tokens", 64)
    assert counts == tuple(sorted(set(counts)))
    assert all(1 <= count <= 64 for count in counts)


@pytest.mark.parametrize("text", ["", "0", "0-3", "3-1", "1-65", "1,,2", "-1", "a", "1.5", "\u0661", "99999999999"])
def test_what_are_no_counts_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_counts(text, "--tokens", 64)


def test_one_more_setting_is_a_key_or_an_option() -> None:
    key, option = (
        parse_also("attention_backend=FLASH_ATTN,FLASHINFER"),
        parse_also("--max-num-batched-tokens=1024,2048"),
    )

    assert key == Also("attention_backend", ("FLASH_ATTN", "FLASHINFER"))
    assert key.speculative_config("FLASH_ATTN") == {"attention_backend": "FLASH_ATTN"}
    assert key.vllm_args("FLASH_ATTN") == []
    assert option is not None
    assert option.vllm_args("1024") == ["--max-num-batched-tokens", "1024"]
    assert option.speculative_config("1024") == {}
    assert Also("max_model_len", ("2048",)).speculative_config("2048") == {"max_model_len": 2048}


@pytest.mark.parametrize(
    "text", ["", "key", "=1", "key=", "num_speculative_tokens=1,2", "model=a", "a b=1", "-x=1", "k=1,2,3,4,5,6,7,8,9"]
)
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_also(text)


def test_a_server_that_does_not_speculate_is_measured_once_unless_the_setting_changes_it() -> None:
    key, option = parse_also("attention_backend=A,B"), parse_also("--block-size=16,32")

    assert sum(not each.speculates for each in all_candidates((1, 2), key)) == 1
    assert sum(not each.speculates for each in all_candidates((1, 2), option)) == 2
    assert RATES[0] > RATES[-1]
