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

    A tick in which no server answers is passed over, and said in the notes; the counts go on from the next answer.

    Raises:
        ToolError: no server answers the first time.
    """
    return _watched(lambda: snapshots(urls, timeout_s), every_s)


def _watched(look: Look, every_s: float) -> Iterator[Recording]:
    first, _ = look()
    last, trend, missed = first, Trend(), 0
    total: Recording | None = None
    while True:
        time.sleep(every_s)
        try:
            now, notes = look()
        except NotFit:
            missed += 1
            continue
        step = between(last, now, notes)
        trend.add(TrendPoint(now[-1].taken_at, step.seconds, step.counted, step.traffic))
        total = step if total is None else _together(total, step)
        seconds = now[-1].taken_at - first[-1].taken_at
        said = (*step.notes, f"{missed} ticks without an answer") if missed else step.notes
        last = now
        yield replace(total, seconds=seconds, trend=trend.points, notes=said)


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
    return replace(step, parts=tuple(parts.values()))
