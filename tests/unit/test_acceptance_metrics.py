"""Draft acceptance from /metrics: exact against recorded counters, over restarts, and refused where it cannot
be right."""

import http.server
import itertools
from contextlib import AbstractContextManager

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dspark_cli.errors import NotFit, ToolError
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import Recording
from dspark_cli.facts.traffic import Traffic
from dspark_cli.sources.acceptance_file import read_metrics_page
from dspark_cli.sources.acceptance_metrics import (
    Engine,
    EngineCounts,
    Snapshot,
    between,
    read_counters,
    read_traffic,
    since_start,
    snapshot,
    snapshots,
)
from dspark_cli.sources.server_metrics import Scrape, parse_samples
from tests.local_server import server_that
from tests.paths import FIXTURES

RECORDED = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_text()
ENGINE = ("tiny", "0")
OTHER = ("tiny", "1")
URL = "http://recorded"

Counted = dict[Engine, DraftCounters]


def scrape_of(text: str) -> Scrape:
    return Scrape(URL, 0.0, parse_samples(text, f"{URL}/metrics"))


def at(taken_at: float, engines: Counted) -> list[Snapshot]:
    return [Snapshot(URL, taken_at, {engine: EngineCounts(counted) for engine, counted in engines.items()})]


def window(before: Counted, after: Counted) -> Recording:
    """Of two snapshots at the times 150 and 250."""
    return between(at(150.0, before), at(250.0, after))


def engines_in(recording: Recording) -> list[Engine]:
    return [(part.model, part.engine) for part in recording.parts]


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

    counted = engines[ENGINE].counted
    assert (counted.drafts, counted.draft_tokens, counted.accepted) == (286, 2002, 193)
    assert counted.accepted_at == (113, 45, 18, 6, 5, 3, 3)


def test_window_is_the_difference_of_two_scrapes() -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3))}
    after: Counted = {ENGINE: DraftCounters(25, 175, 20, (14, 6))}

    found = window(before, after)

    assert found.counted == DraftCounters(15, 105, 11, (8, 3))
    assert (engines_in(found), found.parts[0].restarted, found.notes, found.seconds) == ([ENGINE], False, (), 100.0)
    assert found.since_start[0].counted == after[ENGINE]


def test_engines_are_added_up_since_start() -> None:
    engines: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3)), OTHER: DraftCounters(1, 7, 1, (1, 0))}

    found = since_start(at(0.0, engines))

    assert found.counted == DraftCounters(11, 77, 10, (7, 3))
    assert (engines_in(found), found.seconds) == ([ENGINE, OTHER], None)


def test_an_engine_born_in_the_window_is_counted_whole() -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3))}
    after: Counted = {**before, OTHER: DraftCounters(5, 35, 4, (3, 1), born=200.0)}

    found = window(before, after)

    assert found.counted == DraftCounters(5, 35, 4, (3, 1))
    assert engines_in(found) == [ENGINE, OTHER]
    assert not any(part.restarted for part in found.parts)


@pytest.mark.parametrize("born", [100.0, 300.0, None])
def test_an_engine_that_appears_with_a_history_is_left_out(born: float | None) -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3))}
    after: Counted = {
        ENGINE: DraftCounters(12, 84, 10, (7, 3)),
        OTHER: DraftCounters(90_000, 630_000, 9, (9, 0), born=born),
    }

    found = window(before, after)

    assert found.counted == DraftCounters(2, 14, 1, (1, 0))
    assert engines_in(found) == [ENGINE]
    assert [note.partition(":")[0] for note in found.notes] == ["tiny engine 1 is left out"]


def test_another_engine_under_the_same_name_is_left_out() -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3), born=100.0)}
    after: Counted = {ENGINE: DraftCounters(90, 630, 9, (6, 3), born=50.0)}

    found = window(before, after)

    assert (found.counted.drafts, engines_in(found), len(found.notes)) == (0, [], 1)


def test_an_engine_that_vanished_is_named() -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3)), OTHER: DraftCounters(1, 7, 1, (1, 0))}

    found = window(before, {ENGINE: before[ENGINE]})

    assert engines_in(found) == [ENGINE]
    assert found.notes == ("tiny engine 1 is left out: it is gone by the second scrape",)


def test_a_window_with_more_accepted_than_drafted_is_refused() -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 0, (0,))}

    with pytest.raises(NotFit, match="more is accepted at a position"):
        window(before, {ENGINE: DraftCounters(11, 77, 10, (10,))})


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(DraftCounters(4, 28, 3, (2, 1)), id="lower counters"),
        pytest.param(DraftCounters(40, 280, 30, (20, 10), born=200.0), id="higher counters born later"),
    ],
)
def test_a_restart_in_between_is_noticed_and_counts_from_zero(after: DraftCounters) -> None:
    before: Counted = {ENGINE: DraftCounters(10, 70, 9, (6, 3), born=100.0)}

    found = window(before, {ENGINE: after})

    assert found.parts[0].restarted
    assert found.counted.drafts == after.drafts
    assert found.counted.accepted_at == after.accepted_at


def test_a_server_without_speculation_has_no_engines() -> None:
    assert read_counters(scrape_of(without_speculation(RECORDED))) == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_birth_that_is_no_time_counts_as_absent(value: str) -> None:
    born = 'spec_decode_num_drafts_created{engine="0",model_name="tiny"} '
    page = RECORDED.replace(f"{born}1.7959646022793698e+09", f"{born}{value}")

    assert read_counters(scrape_of(RECORDED))[ENGINE].counted.born == 1.7959646022793698e09
    assert read_counters(scrape_of(page))[ENGINE].counted.born is None


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


counters = st.lists(st.integers(0, 10**9), min_size=0, max_size=8).map(
    lambda at: DraftCounters(max(at, default=0), sum(at), sum(at), tuple(sorted(at, reverse=True)))
)


@given(counters, counters)
def test_a_window_is_never_negative(before: DraftCounters, after: DraftCounters) -> None:
    step = after if after.began_anew_since(before) else after - before
    assume(all(here <= earlier for earlier, here in itertools.pairwise((step.drafts, *step.accepted_at))))

    counted = window({ENGINE: before}, {ENGINE: after}).counted

    assert min(counted.drafts, counted.draft_tokens, counted.accepted, *counted.accepted_at, 0) == 0


def test_traffic_of_a_recorded_server_is_read_exactly() -> None:
    traffic = read_traffic(scrape_of(RECORDED))[ENGINE]

    assert (traffic.prompt_tokens, traffic.generation_tokens, traffic.finished_requests) == (4569, 481, 11)
    assert (traffic.prefix_queries, traffic.prefix_hits, traffic.preemptions) == (4569, 0, 0)


def test_the_prefix_counters_of_older_releases_are_read() -> None:
    page = RECORDED.replace("vllm:prefix_cache_", "vllm:gpu_prefix_cache_")

    assert read_traffic(scrape_of(page))[ENGINE].prefix_queries == 4569


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1.0", "0.5", "1e300"])
def test_traffic_that_is_no_count_is_unknown(value: str) -> None:
    line = next(line for line in RECORDED.splitlines() if line.startswith("vllm:prefix_cache_queries_total{"))
    page = RECORDED.replace(line, f"{line.rpartition(' ')[0]} {value}")

    traffic = read_traffic(scrape_of(page))[ENGINE]

    assert (traffic.prefix_queries, traffic.prefix_hit_rate) == (None, None)
    assert traffic.prompt_tokens == 4569


def test_traffic_that_went_back_is_unknown_in_the_window() -> None:
    """Counters of drafts that went on beside others that did not: nothing is made up of them."""
    counted = DraftCounters(10, 70, 9, (6, 3))
    first = Snapshot(URL, 0.0, {ENGINE: EngineCounts(counted, Traffic(prefix_queries=100, prefix_hits=50))})
    last = Snapshot(URL, 9.0, {ENGINE: EngineCounts(counted, Traffic(prefix_queries=20, prefix_hits=10))})

    assert between([first], [last]).traffic.prefix_hit_rate is None


def test_scientific_notation_is_a_count() -> None:
    page = RECORDED.replace(
        'drafts_total{engine="0",model_name="tiny"} 286.0', 'drafts_total{engine="0",model_name="tiny"} 2.86e+02'
    )

    assert read_counters(scrape_of(page))[ENGINE].counted.drafts == 286


def test_replicas_are_added_up_and_a_dead_one_is_named() -> None:
    later = RECORDED.replace("} 286.0", "} 300.0").replace("1.7959646022793698e+09", "1.7959646029999999e+09")

    with server_of(RECORDED) as a, server_of(later) as b:
        taken, notes = snapshots([a, b, "http://127.0.0.1:1"], 5.0)

    found = since_start(taken, notes)
    assert found.counted.drafts == 286 + 300
    assert [part.where for part in found.parts] == [a, b]
    assert found.notes == (
        "left out: no server answers at http://127.0.0.1:1/metrics ([Errno 111] Connection refused)",
    )


def test_a_server_that_is_given_twice_is_counted_once() -> None:
    with server_of(RECORDED) as url:
        other_name = url.replace("127.0.0.1", "localhost")
        taken, notes = snapshots([url, f"{url}/", f"{url}/metrics", other_name], 5.0)

    assert since_start(taken).counted.drafts == 286
    assert notes == [f"{other_name} is the server at {taken[0].where}, and counted once"]


def test_more_hits_than_queries_are_no_hit_rate() -> None:
    hits = next(line for line in RECORDED.splitlines() if line.startswith("vllm:prefix_cache_hits_total{"))
    page = RECORDED.replace(hits, f"{hits.rpartition(' ')[0]} 9999.0")

    assert read_traffic(scrape_of(page))[ENGINE].prefix_hit_rate is None


def test_positions_that_do_not_add_up_are_refused() -> None:
    counted = DraftCounters(20_000, 140_000, 20_000, (9_000, 5_000))

    assert counted.implausible() == "the positions do not add up to the accepted tokens"
    assert DraftCounters(20_000, 140_000, 14_007, (9_000, 5_000)).implausible() is None


def test_a_replica_without_a_drafter_is_named() -> None:
    with server_of(RECORDED) as a, server_of(without_speculation(RECORDED)) as b:
        taken, notes = snapshots([a, b], 5.0)

    assert since_start(taken).counted.drafts == 286
    assert notes == [f"{b} runs without speculative decoding"]


def test_servers_that_all_fail_are_an_error() -> None:
    with pytest.raises(NotFit, match="no server answers"):
        snapshots(["http://127.0.0.1:1", "http://127.0.0.1:2"], 5.0)


def test_a_snapshot_is_one_fetch() -> None:
    fetched: list[str] = []

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        fetched.append(request.path)
        request.send_response(200)
        request.end_headers()
        request.wfile.write(RECORDED.encode())

    with server_that(respond) as url:
        snapshot(url, 5.0)

    assert fetched == ["/metrics"]


def test_speculation_that_ends_in_the_window_leaves_nothing_counted() -> None:
    with server_of(RECORDED, without_speculation(RECORDED)) as url:
        found = between(snapshots([url], 5.0)[0], snapshots([url], 5.0)[0])

    assert not found.speculates
    assert found.notes == ("tiny engine 0 is left out: it is gone by the second scrape",)


@given(st.binary(max_size=2000))
def test_any_page_is_counted_or_refused(content: bytes) -> None:
    try:
        found = read_metrics_page(content, "page")
    except ToolError:
        return
    assert found.counted.implausible() is None


@given(st.data())
def test_a_damaged_page_is_counted_rightly_or_refused(data: st.DataObject) -> None:
    """A recorded page with a stretch cut out or overwritten: where it is still taken, no count is above the real one
    unless its digits were changed."""
    page = "".join(line for line in RECORDED.splitlines(keepends=True) if "spec_decode" in line)
    start = data.draw(st.integers(0, len(page)))
    end = data.draw(st.integers(start, min(len(page), start + 200)))

    try:
        found = read_metrics_page((page[:start] + page[end:]).encode(), "page")
    except ToolError:
        return
    assert found.counted.implausible() is None
