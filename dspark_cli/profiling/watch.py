"""A server's acceptance as it goes on: one report a tick, each of all that was counted since the watch began."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dspark_cli.errors import NotFit
from dspark_cli.facts.recording import Recording, TrendPoint
from dspark_cli.facts.trend import Trend
from dspark_cli.sources.acceptance_metrics import Snapshot, between, snapshots

Look = Callable[[], tuple[list[Snapshot], list[str]]]


def watched(urls: Sequence[str], every_s: float, timeout_s: float) -> Iterator[Recording]:
    """A recording every `every_s` seconds, without end, whose trend has a point a tick.

    A tick in which no server answers, or counters are read while they change, is passed over, and said in the notes;
    the counts go on from the next answer. So do those of one server that misses a tick.

    Raises:
        ToolError: no server answers the first time.
    """
    return _watched(lambda: snapshots(urls, timeout_s), every_s)


def _watched(look: Look, every_s: float) -> Iterator[Recording]:
    first, _ = look()
    last, trend, missed = {each.where: each for each in first}, Trend(), 0
    began, before = _taken_at(first), _taken_at(first)
    total: Recording | None = None
    while True:
        time.sleep(every_s)
        try:
            now, notes = look()
            step = between([last[each.where] for each in now if each.where in last], now, notes)
        except NotFit:
            missed += 1
            continue
        at = _taken_at(now)
        trend.add(TrendPoint(at, at - before, step.counted, step.traffic))
        total = step if total is None else _together(total, step)
        said = (*step.notes, f"ticks passed over: {missed}") if missed else step.notes
        last |= {each.where: each for each in now}
        before = at
        yield replace(total, seconds=at - began, trend=trend.points, notes=said)


def _taken_at(taken: Sequence[Snapshot]) -> float:
    return max(each.taken_at for each in taken)


def _together(total: Recording, step: Recording) -> Recording:
    """Both spans as one: an engine that was restarted goes on counting."""
    parts = {(part.where, part.model, part.engine): part for part in total.parts}
    for part in step.parts:
        key = part.where, part.model, part.engine
        if before := parts.get(key):
            part = replace(
                part,
                counted=before.counted + part.counted,
                traffic=before.traffic + part.traffic,
                restarted=before.restarted or part.restarted,
            )
        parts[key] = part
    where = tuple(dict.fromkeys([*total.where, *step.where]))
    return replace(step, where=where, parts=tuple(parts.values()), speculates=step.speculates or bool(parts))
