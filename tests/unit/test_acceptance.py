"""The acceptance profile: exact against recorded counters and against published figures."""

import http.server
import itertools
import json
from contextlib import AbstractContextManager

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dspark_cli.commands.acceptance import acceptance
from dspark_cli.errors import BadInput, CannotSay, NotFit
from dspark_cli.facts.acceptance import (
    AcceptanceProfile,
    DraftCounters,
    EngineCounters,
    Window,
    counted_between,
    counted_since_start,
    read_counters,
    wilson_interval,
)
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from tests.local_server import server_that
from tests.paths import FIXTURES

RECORDED = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_text()
ENGINE = ("tiny", "0")
OTHER = ("tiny", "1")


def scrape_of(text: str) -> Scrape:
    return Scrape("http://recorded", 0.0, parse_samples(text, "http://recorded/metrics"))


def between(before: EngineCounters, after: EngineCounters) -> Window:
    """Of two scrapes at the times 150 and 250."""
    return counted_between(before, after, 150.0, 250.0)


def without_speculation(page: str) -> str:
    return "\n".join(line for line in page.splitlines() if "spec_decode" not in line) + "\n"


def server_of(*pages: str) -> AbstractContextManager[str]:
    """A server that answers with one page after the other, and then with the last."""
    answers = itertools.chain(pages, itertools.repeat(pages[-1]))

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(next(answers).encode())

    return server_that(respond)


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

    window = between(before, after)

    assert window == Window(DraftCounters(15, 105, 11, (8, 3)), [ENGINE], restarted=False, notes=[])


def test_engines_are_added_up_since_start() -> None:
    engines: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3)), OTHER: DraftCounters(1, 7, 1, (1, 0))}

    window = counted_since_start(engines)

    assert window == Window(DraftCounters(11, 77, 10, (7, 3)), [ENGINE, OTHER], restarted=False, notes=[])


def test_an_engine_born_in_the_window_is_counted_whole() -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3))}
    after: EngineCounters = {**before, OTHER: DraftCounters(5, 35, 4, (3, 1), born=200.0)}

    window = between(before, after)

    assert window == Window(DraftCounters(5, 35, 4, (3, 1)), [ENGINE, OTHER], restarted=False, notes=[])


@pytest.mark.parametrize("born", [100.0, 300.0, None])
def test_an_engine_that_appears_with_a_history_is_left_out(born: float | None) -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3))}
    after: EngineCounters = {
        ENGINE: DraftCounters(12, 84, 10, (7, 3)),
        OTHER: DraftCounters(90_000, 630_000, 9, (9, 0), born=born),
    }

    window = between(before, after)

    assert window.counted == DraftCounters(2, 14, 1, (1, 0))
    assert window.engines == [ENGINE]
    assert [note.partition(":")[0] for note in window.notes] == ["tiny engine 1 is left out"]


def test_another_engine_under_the_same_name_is_left_out() -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3), born=100.0)}
    after: EngineCounters = {ENGINE: DraftCounters(90, 630, 9, (6, 3), born=50.0)}

    window = between(before, after)

    assert (window.counted.drafts, window.engines, len(window.notes)) == (0, [], 1)


def test_an_engine_that_vanished_is_named() -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3)), OTHER: DraftCounters(1, 7, 1, (1, 0))}

    window = between(before, {ENGINE: before[ENGINE]})

    assert window.engines == [ENGINE]
    assert window.notes == ["tiny engine 1 is left out: it is gone by the second scrape"]


def test_a_window_with_more_accepted_than_drafted_is_refused() -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 0, (0,))}

    with pytest.raises(NotFit, match="more is accepted at a position"):
        between(before, {ENGINE: DraftCounters(11, 77, 10, (10,))})


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(DraftCounters(4, 28, 3, (2, 1)), id="lower counters"),
        pytest.param(DraftCounters(40, 280, 30, (20, 10), born=200.0), id="higher counters born later"),
    ],
)
def test_a_restart_in_between_is_noticed_and_counts_from_zero(after: DraftCounters) -> None:
    before: EngineCounters = {ENGINE: DraftCounters(10, 70, 9, (6, 3), born=100.0)}

    window = between(before, {ENGINE: after})

    assert window.restarted
    assert window.counted.drafts == after.drafts
    assert window.counted.accepted_at == after.accepted_at


def test_a_server_without_speculation_has_no_engines() -> None:
    assert read_counters(scrape_of(without_speculation(RECORDED))) == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_birth_that_is_no_time_counts_as_absent(value: str) -> None:
    born = 'spec_decode_num_drafts_created{engine="0",model_name="tiny"} '
    page = RECORDED.replace(f"{born}1.7959646022793698e+09", f"{born}{value}")

    assert read_counters(scrape_of(RECORDED))[ENGINE].born == 1.7959646022793698e09
    assert read_counters(scrape_of(page))[ENGINE].born is None


@pytest.mark.parametrize("name", ["drafts_total", "accepted_tokens_total", "accepted_tokens_per_pos_total"])
def test_an_aggregators_page_is_refused(name: str) -> None:
    line = next(line for line in RECORDED.splitlines() if f"spec_decode_num_{name}{{" in line)
    page = RECORDED.replace(line, "\n".join(line.replace("{", f'{{pod="{pod}",') for pod in "ab"))

    with pytest.raises(NotFit, match="is there twice for tiny engine 0") as refused:
        read_counters(scrape_of(page))
    assert "aggregator" in refused.value.next_step


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('_per_pos_total{engine="0",model_name="tiny",position="1"} 45.0', "# gone"),
        ('spec_decode_num_drafts_total{engine="0",model_name="tiny"} 286.0', "spec_decode_num_drafts_total NaN"),
        ('position="1"} 45.0', 'position="one"} 45.0'),
        ('position="1"} 45.0', f'position="{"1" * 5000}"}} 45.0'),
        ('position="1"} 45.0', 'position="3000"} 45.0'),
        ('position="1"} 45.0', 'position="3000000000"} 45.0'),
        ('position="1"} 45.0', 'position="\u0661"} 45.0'),
        ('position="1"} 45.0', 'position="00"} 45.0'),
        ('position="1"} 45.0', 'position="1"} 45.5'),
        ('position="1"} 45.0', 'position="1"} 114.0'),
        ('position="0"} 113.0', 'position="0"} 287.0'),
        (
            'accepted_tokens_total{engine="0",model_name="tiny"} 193.0',
            'accepted_tokens_total{engine="0",model_name="tiny"} 2003.0',
        ),
        ('drafts_total{engine="0",model_name="tiny"} 286.0', 'drafts_total{engine="0",model_name="tiny"} 1.7e308'),
    ],
)
def test_counters_that_cannot_be_right_are_refused(old: str, new: str) -> None:
    lines = [line for line in RECORDED.splitlines() if old in line]
    assert lines, "the recording has what is to be damaged"
    damaged = RECORDED.replace(lines[0], "# gone" if new == "# gone" else lines[0].replace(old, new))

    with pytest.raises(NotFit, match="cannot be used"):
        read_counters(scrape_of(damaged))


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e300, float("inf"), float("nan")])
def test_seconds_out_of_range_are_refused(seconds: float) -> None:
    with pytest.raises(BadInput, match=r"--interval is .* at most 1,000,000"):
        acceptance("http://127.0.0.1:1", interval=seconds)
    with pytest.raises(BadInput, match=r"--timeout is .* at most 1,000,000"):
        acceptance("http://127.0.0.1:1", timeout=seconds)


def test_the_report_has_notes_and_no_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    speculative = (line for line in RECORDED.splitlines(keepends=True) if line.startswith("vllm:spec_decode"))
    old_engine = "".join(speculative).replace('engine="0"', 'engine="1"')
    later = RECORDED.replace("} 286.0", "} 300.0") + old_engine

    with server_of(RECORDED, later, RECORDED, later) as url:
        secret = url.replace("//", "//user:SECRET@") + "?api_key=SECRET"
        acceptance(secret, interval=0.01, json=True)
        printed = capsys.readouterr()
        acceptance(secret, interval=0.01)
        shown = capsys.readouterr()

    report = json.loads(printed.out)
    assert (report["url"], report["engines"], report["profile"]["drafts"]) == (url, ["tiny engine 0"], 14)
    assert [note.partition(":")[0] for note in report["notes"]] == ["tiny engine 1 is left out"]
    assert f"note: {report['notes'][0]}" in shown.err
    assert "SECRET" not in "".join((*printed, *shown))


def test_a_window_without_a_counted_engine_says_why() -> None:
    other = RECORDED.replace('engine="0"', 'engine="1"')

    with (
        server_of(other, RECORDED) as url,
        pytest.raises(CannotSay, match=r"engine 0 is left out.*engine 1 is left out"),
    ):
        acceptance(url, interval=0.01)


def test_speculation_that_ends_in_the_window_is_named() -> None:
    with server_of(RECORDED, without_speculation(RECORDED)) as url, pytest.raises(NotFit, match="no longer speculates"):
        acceptance(url, interval=0.01)


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
    step = after if after.began_anew_since(before) else after - before
    assume(all(here <= earlier for earlier, here in itertools.pairwise((step.drafts, *step.accepted_at))))

    counted = between({ENGINE: before}, {ENGINE: after}).counted

    assert min(counted.drafts, counted.draft_tokens, counted.accepted, *counted.accepted_at, 0) == 0
