"""Two profiles beside each other: what is better, worse or not shown, and intervals that keep their word."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind
from dspark_cli.facts.traffic import UNKNOWN_TRAFFIC, Traffic
from dspark_cli.profiling.acceptance_report import AcceptanceReport
from dspark_cli.profiling.difference import AcceptanceDifference, Change, difference_of
from dspark_cli.profiling.judge import report_on
from dspark_cli.report.acceptance_diff import show_difference
from dspark_cli.report.json_document import to_json
from dspark_cli.sources.acceptance_file import read_metrics_page
from tests.paths import FIXTURES

SEED = pytest.mark.parametrize("seed", [20261129])
"""In the test's name, so that a failure shows it."""


def report_of(
    drafts: int, accepted_at: tuple[int, ...], *, drafted: int | None = None, requests: int | None = None
) -> AcceptanceReport:
    counted = DraftCounters(drafts, drafted or drafts * max(1, len(accepted_at)), sum(accepted_at), accepted_at)
    return report_of_counts(counted, UNKNOWN_TRAFFIC if requests is None else Traffic(finished_requests=requests))


def report_of_counts(counted: DraftCounters, traffic: Traffic = UNKNOWN_TRAFFIC) -> AcceptanceReport:
    part = EnginePart("http://test", "tiny", "0", counted, traffic)
    return report_on(Recording(SourceKind.METRICS, ("http://test",), 60.0, (part,)))


def difference(a: AcceptanceReport, b: AcceptanceReport) -> AcceptanceDifference:
    return difference_of("before", "after", a, b)


GOOD, BAD = report_of(1000, (700, 450, 250)), report_of(1000, (500, 200, 60))


def test_more_accepted_is_better_and_less_is_worse() -> None:
    up, down = difference(BAD, GOOD), difference(GOOD, BAD)

    assert (up.verdict, down.verdict) == (Change.BETTER, Change.WORSE)
    assert [at.verdict for at in up.positions] == [Change.BETTER] * 3
    assert [at.verdict for at in down.positions] == [Change.WORSE] * 3
    assert up.change == pytest.approx((1400 - 760) / 1000)
    assert up.change == -down.change


def test_swapped_sides_have_the_mirrored_intervals() -> None:
    up, down = difference(BAD, GOOD), difference(GOOD, BAD)

    assert (up.low, up.high) == (-down.high, -down.low) if down.low is not None and down.high is not None else None
    for one, other in zip(up.positions, down.positions, strict=True):
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))


def test_equal_profiles_show_no_difference() -> None:
    found = difference(GOOD, GOOD)

    assert (found.change, found.verdict) == (0, Change.NOT_SHOWN)
    assert {at.verdict for at in found.positions} == {Change.NOT_SHOWN}


@pytest.mark.parametrize("sides", [(report_of(199, (150, 90)), GOOD), (GOOD, report_of(199, (0, 0)))])
def test_few_draft_steps_get_no_verdict(sides: tuple[AcceptanceReport, AcceptanceReport]) -> None:
    found = difference(*sides)

    assert found.verdict is Change.TOO_FEW
    assert {at.verdict for at in found.positions} == {Change.TOO_FEW}


def test_positions_that_are_not_known_give_the_widest_interval() -> None:
    """Steps that accept all or nothing vary the most."""
    known, unknown = (
        difference(GOOD, report_of_counts(DraftCounters(1000, 3000, 1400, at))) for at in ((700, 450, 250), ())
    )

    assert unknown.positions == ()
    assert unknown.high - unknown.low > known.high - known.low
    assert unknown.verdict is Change.NOT_SHOWN


def test_two_looks_at_one_server_since_its_start_are_not_compared() -> None:
    """The later one holds the earlier: what would be compared is half the same."""
    page = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()
    earlier, later = (report_on(read_metrics_page(page, "http://127.0.0.1:8000")) for _ in range(2))

    with pytest.raises(BadInput, match="one holds the other") as refused:
        difference(earlier, later)
    assert "--interval" in refused.value.next_step


def test_other_numbers_of_tokens_are_compared_as_far_as_both_go() -> None:
    found = difference(GOOD, report_of(1000, (700, 450, 250, 140, 80)))

    assert [at.position for at in found.positions] == [0, 1, 2]
    assert {at.verdict for at in found.positions} == {Change.NOT_SHOWN}
    assert found.verdict is Change.BETTER, "five tokens yield more than three"
    assert found.notes == ("A drafts 3 tokens and B 5: the longer one's last positions have no like",)


def test_few_requests_are_noted() -> None:
    few = report_of(1000, (700, 450, 250), requests=3)

    assert any("3 requests only" in note for note in difference(GOOD, few).notes)
    assert difference(GOOD, report_of(1000, (700, 450, 250), requests=300)).notes == ()


def test_a_side_without_a_draft_step_is_named() -> None:
    with pytest.raises(CannotSay, match="after holds no draft step"):
        difference(GOOD, report_of(0, (0, 0)))


def test_nothing_accepted_on_either_side_shows_no_difference() -> None:
    nothing = report_of(500, (0, 0, 0))

    assert difference(nothing, nothing).verdict is Change.NOT_SHOWN


def drawn(random: np.random.Generator, drafts: int, conditional: list[float]) -> AcceptanceReport:
    """A drafter that is right at each position with the same chance, whatever came before."""
    accepted, left = [], drafts
    for rate in conditional:
        left = int(random.binomial(left, rate))
        accepted.append(left)
    return report_of(drafts, tuple(accepted))


@SEED
@pytest.mark.parametrize(("drafts_a", "drafts_b"), [(250, 250), (2000, 400)])
def test_equal_drafters_show_no_difference_in_about_19_of_20_cases(drafts_a: int, drafts_b: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = [0.7, 0.6, 0.5]

    found = [difference(drawn(random, drafts_a, rates), drawn(random, drafts_b, rates)) for _ in range(250)]

    calm = sum(each.verdict is Change.NOT_SHOWN for each in found) / len(found)
    calm_everywhere = sum(all(at.verdict is Change.NOT_SHOWN for at in each.positions) for each in found) / len(found)
    assert 0.92 <= calm <= 0.98
    assert calm_everywhere >= 0.93


@SEED
def test_a_drafter_that_is_clearly_better_is_found(seed: int) -> None:
    random = np.random.default_rng(seed)

    found = [difference(drawn(random, 1000, [0.6, 0.5, 0.5]), drawn(random, 1000, [0.7, 0.6, 0.5])) for _ in range(100)]

    assert sum(each.verdict is Change.BETTER for each in found) >= 95
    assert not any(each.verdict is Change.WORSE for each in found)


@st.composite
def reports(draw: st.DrawFn) -> AcceptanceReport:
    drafts = draw(st.integers(1, 2**53) | st.integers(1, 500))
    shares = sorted(draw(st.lists(st.floats(0, 1), max_size=6)), reverse=True)
    accepted_at = tuple(int(drafts * share) for share in shares)
    drafted = draw(st.integers(sum(accepted_at), 8 * drafts))
    known = draw(st.booleans())
    return report_of_counts(DraftCounters(drafts, drafted, sum(accepted_at), accepted_at if known else ()))


@settings(max_examples=150)
@given(reports(), reports())
def test_any_two_profiles_can_be_compared_and_shown(a: AcceptanceReport, b: AcceptanceReport) -> None:
    found = difference(a, b)

    assert json.loads(to_json("acceptance diff", found))["verdict"] == str(found.verdict)
    show_difference(found)
    for at in found.positions:
        assert at.low - 1e-12 <= at.change <= at.high + 1e-12
    if found.low is not None and found.high is not None:
        assert found.low <= found.change <= found.high
