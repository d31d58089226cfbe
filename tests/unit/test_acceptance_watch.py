"""A watch over servers that answer, restart and fall silent: its total is all that was counted meanwhile."""

import http.server
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import NotFit
from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.recording import Recording
from dspark_cli.facts.traffic import Traffic
from dspark_cli.profiling.watch import _watched, watched
from dspark_cli.sources.acceptance_metrics import EngineCounts, Snapshot
from tests.local_server import answer, server_that

A = "http://a"
ENGINE = ("tiny", "0")
SILENT = None


def page(drafts: int, accepted: int, *, born: float | None = 1.0, requests: int = 0) -> str:
    """/metrics of a server with one draft position."""
    label = 'engine="0",model_name="tiny"'
    return "\n".join(
        [
            "# TYPE vllm:spec_decode_num_drafts counter",
            f"vllm:spec_decode_num_drafts_total{{{label}}} {drafts}.0",
            "" if born is None else f"vllm:spec_decode_num_drafts_created{{{label}}} {born}",
            f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {drafts}.0",
            f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {accepted}.0",
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="0"}} {accepted}.0',
            f"vllm:request_success_total{{{label}}} {requests}.0",
            "",
        ]
    )


def answers_with(pages: Sequence[str | None]) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    """One page after the other, then the last for ever; where there is none, an error."""
    following = itertools.chain(pages, itertools.repeat(pages[-1]))

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        content = next(following)
        answer(request, 503 if content is None else 200, (content or "busy").encode())

    return respond


def watch_of(*servers: Sequence[str | None], ticks: int) -> list[Recording]:
    """`ticks` reports of a watch over servers that answer with these pages."""
    with ExitStack() as stack:
        urls = [stack.enter_context(server_that(answers_with(pages))) for pages in servers]
        return list(itertools.islice(watched(urls, 0.01, 5.0), ticks))


def summed(recording: Recording) -> DraftCounters:
    return sum((point.counted for point in recording.trend), NOTHING)


def test_the_total_is_what_was_counted_since_the_watch_began() -> None:
    found = watch_of([page(100, 50), page(110, 55), page(110, 55), page(140, 70, requests=3)], ticks=3)

    assert [each.counted.drafts for each in found] == [10, 10, 40]
    assert [each.counted.accepted for each in found] == [5, 5, 20]
    assert [point.counted.drafts for point in found[-1].trend] == [10, 0, 30]
    assert found[-1].traffic.finished_requests == 3
    assert found[-1].since_start[0].counted.drafts == 140


def test_a_restart_in_between_counts_from_zero() -> None:
    found = watch_of([page(100, 50), page(110, 55), page(7, 3, born=None), page(9, 4, born=None)], ticks=3)[-1]

    assert found.counted.drafts == 10 + 7 + 2
    assert found.parts[0].restarted
    assert summed(found).drafts == found.counted.drafts


def test_a_tick_without_an_answer_is_passed_over_and_noted() -> None:
    found = watch_of([page(100, 50), page(110, 55), SILENT, SILENT, page(140, 70)], ticks=2)

    assert [each.counted.drafts for each in found] == [10, 40]
    assert [each.notes for each in found] == [(), ("ticks passed over: 2",)]


def test_counters_that_are_read_while_they_change_cost_one_tick() -> None:
    """Between two looks more is accepted than drafted: the next look puts it right."""
    found = watch_of([page(100, 50), page(101, 60), page(120, 61)], ticks=1)

    assert found[0].counted == DraftCounters(20, 20, 11, (11,))
    assert found[0].notes == ("ticks passed over: 1",)


def test_one_of_two_servers_that_misses_a_tick_loses_nothing() -> None:
    steady = [page(100, 50), page(110, 55), page(120, 60), page(130, 65)]
    absent = [page(100, 0, born=2.0), SILENT, page(150, 10, born=2.0), page(160, 10, born=2.0)]

    found = watch_of(steady, absent, ticks=3)

    assert [each.counted.drafts for each in found] == [10, 20 + 50, 30 + 60]
    assert "left out" in found[0].notes[0]
    assert len(found[-1].parts) == len(found[-1].where) == 2
    assert summed(found[-1]).drafts == 90


def test_a_server_that_goes_for_good_stays_in_the_total() -> None:
    found = watch_of(
        [page(100, 50), page(110, 55), page(120, 60)],
        [page(100, 0, born=2.0), page(105, 0, born=2.0), SILENT],
        ticks=2,
    )[-1]

    assert found.counted.drafts == 20 + 5
    assert len(found.where) == 2


def test_a_watch_whose_first_look_fails_ends() -> None:
    with pytest.raises(NotFit, match="503"):
        watch_of([SILENT], ticks=1)


def test_a_server_without_a_drafter_is_watched_and_has_no_draft() -> None:
    plain = 'vllm:request_success_total{engine="0",model_name="tiny"} 1.0\n'

    found = watch_of([plain, plain], ticks=1)[0]

    assert (found.speculates, found.counted, found.parts) == (False, NOTHING, ())


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 50), st.booleans())), min_size=1, max_size=20))
def test_the_total_is_the_sum_over_any_course(ticks: list[tuple[int, bool] | None]) -> None:
    """None is a tick without an answer; else so many drafts more, after a restart or not."""
    looks: list[Snapshot | None] = [snapshot(0.0, 1000, 0.0)]
    count, born = 1000, 0.0
    for at, tick in enumerate(ticks, start=1):
        if tick is None:
            looks.append(None)
            continue
        more, restarted = tick
        if restarted:
            count, born = 0, at - 0.5
        count += more
        looks.append(snapshot(float(at), count, born))

    found = list(course(looks))

    if any(tick is not None for tick in ticks):
        assert found[-1].counted.drafts == summed(found[-1]).drafts == sum_over(looks)
        assert sum(point.seconds or 0 for point in found[-1].trend) == found[-1].seconds


def snapshot(at: float, drafts: int, born: float) -> Snapshot:
    counted = DraftCounters(drafts, drafts, drafts, (drafts,), born)
    return Snapshot(A, at, {ENGINE: EngineCounts(counted, Traffic(finished_requests=drafts))})


def sum_over(looks: Sequence[Snapshot | None]) -> int:
    """What is counted between looks that follow each other; a new birth counts from zero."""
    total = 0
    for before, after in itertools.pairwise(look.engines[ENGINE].counted for look in looks if look is not None):
        total += after.drafts - (before.drafts if after.born == before.born else 0)
    return total


def course(looks: Sequence[Snapshot | None]) -> Iterator[Recording]:
    """The watch's reports over `looks`, until they end."""
    following = iter(looks)

    def look() -> tuple[list[Snapshot], list[str]]:
        taken = next(following)
        if taken is None:
            raise NotFit("no server answers", "")
        return [taken], []

    watch = _watched(look, 0.0)
    while True:
        try:
            yield next(watch)
        except RuntimeError:  # the looks are at their end
            return
