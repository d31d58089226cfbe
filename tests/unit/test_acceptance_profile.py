"""The acceptance profile: exact against published figures, with intervals that hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.intervals import acceptance_length_interval, wilson_interval


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


@given(st.integers(1, 10_000), st.data())
def test_wilson_interval_encloses_the_share(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))

    low, high = wilson_interval(successes, trials)

    assert 0 <= low <= successes / trials <= high <= 1
    assert high - low < 1


def test_wilson_interval_matches_the_textbook() -> None:
    low, high = wilson_interval(10, 100)

    assert (low, high) == pytest.approx((0.05523, 0.17437), abs=1e-5)


def test_the_length_has_an_interval_from_the_positions() -> None:
    """Steps that accept 0, 1 or 2 tokens in equal parts: mean 1, variance 2/3."""
    low, high = acceptance_length_interval(DraftCounters(600, 1200, 600, (400, 200))) or (0.0, 0.0)

    assert (low + high) / 2 == pytest.approx(2.0)
    assert (high - low) / 2 == pytest.approx(1.959964 * (2 / 3 / 600) ** 0.5, rel=1e-5)


def test_a_length_without_positions_has_no_interval() -> None:
    assert acceptance_length_interval(DraftCounters(600, 1200, 600, ())) is None
    assert AcceptanceProfile.of(DraftCounters(600, 1200, 600, ())).length_low is None


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=16), st.integers(1, 5000))
def test_any_profile_has_rates_within_their_intervals(counts: list[int], more: int) -> None:
    accepted_at = tuple(sorted(counts, reverse=True))
    drafts = accepted_at[0] + more

    profile = AcceptanceProfile.of(DraftCounters(drafts, drafts * len(counts), sum(counts), accepted_at))

    assert profile.length_low is not None
    assert profile.length_high is not None
    assert 1 <= profile.length_low <= profile.mean_acceptance_length <= profile.length_high
    for at in profile.positions:
        assert 0 <= at.rate_low <= at.rate <= at.rate_high <= 1
        assert at.conditional_rate is None or at.conditional_rate >= at.rate
