"""The acceptance profile: exact against recorded counters and against published figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import NotFit
from dspark_cli.facts.acceptance import (
    AcceptanceProfile,
    DraftCounters,
    EngineCounters,
    counted_between,
    read_counters,
    wilson_interval,
)
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from tests.paths import FIXTURES

RECORDED = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_text()
ENGINE = ("tiny", "0")


def scrape_of(text: str) -> Scrape:
    return Scrape("http://recorded", 0.0, parse_samples(text, "http://recorded/metrics"))


def test_counters_of_a_recorded_server_are_read_exactly() -> None:
    engines = read_counters(scrape_of(RECORDED))

    counted = engines[ENGINE]
    assert (counted.drafts, counted.draft_tokens, counted.accepted) == (286, 2002, 193)
    assert counted.accepted_at == (113, 45, 18, 6, 5, 3, 3)


def test_profile_reproduces_published_figures() -> None:
    accepted_at = (7506, 4887, 3084, 1925, 1236, 765, 468)
    counted = DraftCounters(10_270, 71_890, sum(accepted_at), accepted_at)

    profile = AcceptanceProfile.of(counted)

    assert profile.accepted == 19_871
    assert profile.draft_acceptance_rate == pytest.approx(0.276, abs=5e-4)
    assert profile.mean_acceptance_length - 1 == pytest.approx(1.93, abs=5e-3)
    assert profile.positions[0].rate == 7506 / 10_270
    assert profile.positions[1].conditional_rate == 4887 / 7506


def test_profile_reproduces_published_totals() -> None:
    profile = AcceptanceProfile.of(DraftCounters(84_278, 589_946, 239_307, ()))

    assert profile.draft_acceptance_rate == pytest.approx(0.40564, abs=5e-6)
    assert profile.mean_acceptance_length == pytest.approx(3.84, abs=5e-3)


def test_a_position_never_reached_has_no_conditional_rate() -> None:
    profile = AcceptanceProfile.of(DraftCounters(drafts=5, draft_tokens=15, accepted=2, accepted_at=(2, 0, 0)))

    assert [at.conditional_rate for at in profile.positions] == [2 / 5, 0.0, None]


def test_no_draft_step_makes_no_profile() -> None:
    with pytest.raises(ValueError, match="no draft step"):
        AcceptanceProfile.of(DraftCounters(0, 0, 0, (0, 0)))


def test_window_is_the_difference_of_two_scrapes() -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3))}
    after: EngineCounters = {ENGINE: DraftCounters(25, 175, 20, (14, 6))}

    window = counted_between(before, after)

    assert window.counted == DraftCounters(15, 105, 11, (8, 3))
    assert not window.restarted


def test_window_adds_engines_up() -> None:
    after: EngineCounters = {
        ("tiny", "0"): DraftCounters(10, 70, 9, (6, 3)),
        ("tiny", "1"): DraftCounters(1, 7, 1, (1, 0)),
    }

    assert counted_between({}, after).counted == DraftCounters(11, 77, 10, (7, 3))


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(DraftCounters(4, 28, 3, (2, 1), born=200.0), id="lower counters"),
        pytest.param(DraftCounters(40, 280, 30, (20, 10), born=200.0), id="higher counters born later"),
    ],
)
def test_a_restart_in_between_is_noticed_and_counts_from_zero(after: DraftCounters) -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3), born=100.0)}

    window = counted_between(before, {ENGINE: after})

    assert window.restarted
    assert window.counted.drafts == after.drafts
    assert window.counted.accepted_at == after.accepted_at


def test_a_server_without_speculation_has_no_engines() -> None:
    text = "\n".join(line for line in RECORDED.splitlines() if "spec_decode" not in line) + "\n"

    assert read_counters(scrape_of(text)) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('_per_pos_total{engine="0",model_name="tiny",position="1"} 45.0', "# gone"),
        ('spec_decode_num_drafts_total{engine="0",model_name="tiny"} 286.0', "spec_decode_num_drafts_total NaN"),
        ('position="1"} 45.0', 'position="one"} 45.0'),
        ('position="1"} 45.0', 'position="1"} 45.5'),
    ],
    ids=["a position is missing", "NaN", "a position is no number", "a count is no whole number"],
)
def test_counters_that_cannot_be_right_are_refused(old: str, new: str) -> None:
    lines = [line for line in RECORDED.splitlines() if old in line]
    assert lines, "the recording has what is to be damaged"
    damaged = RECORDED.replace(lines[0], "# gone" if new == "# gone" else lines[0].replace(old, new))

    with pytest.raises(NotFit, match="cannot be used"):
        read_counters(scrape_of(damaged))


@given(st.integers(1, 10_000), st.data())
def test_wilson_interval_encloses_the_share(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))

    low, high = wilson_interval(successes, trials)

    assert 0 <= low <= successes / trials <= high <= 1
    assert high - low < 1


def test_wilson_interval_matches_the_textbook() -> None:
    low, high = wilson_interval(10, 100)

    assert (low, high) == pytest.approx((0.05523, 0.17437), abs=1e-5)


counters = st.lists(st.integers(0, 10**9), min_size=0, max_size=8).map(
    lambda at: DraftCounters(max(at, default=0), sum(at), sum(at), tuple(sorted(at, reverse=True)))
)


@given(counters, counters)
def test_a_window_is_never_negative(before: DraftCounters, after: DraftCounters) -> None:
    counted = counted_between({ENGINE: before}, {ENGINE: after}).counted

    assert min(counted.drafts, counted.draft_tokens, counted.accepted, *counted.accepted_at, 0) == 0
