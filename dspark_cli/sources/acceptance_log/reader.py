"""Reads a log line by line and adds up what its lines on drafts count."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from dspark_cli.errors import BadInput
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import Recording, SourceKind, TrendPoint
from dspark_cli.facts.trend import Trend
from dspark_cli.sources.acceptance_log import v0_totals, v1_figures
from dspark_cli.sources.acceptance_log.clock import Clock
from dspark_cli.sources.acceptance_log.draft_steps import worked_out
from dspark_cli.sources.acceptance_log.engines import Engines
from dspark_cli.sources.acceptance_log.log_line import LogLine, log_line
from dspark_cli.sources.acceptance_log.printed_numbers import Contradictory, Unreadable
from dspark_cli.sources.acceptance_log.refusal import no_counts
from dspark_cli.sources.acceptance_log.runs import Runs
from dspark_cli.sources.acceptance_log.server_starts import ServerStarts, is_start
from dspark_cli.sources.acceptance_log.tally import Tally
from dspark_cli.sources.bounded_lines import bounded_lines

_WORTH_READING = re.compile(
    rb"(?:SpecDecoding|Speculative|DiffusionDecoding) metrics: |"
    rb"Avg prompt throughput: |non-default args: |Initializing a"
)
_FILES_ON_STATISTICS = ("metrics", "loggers")


def read_acceptance_log(lines: BinaryIO, name: str) -> Recording:
    """What the log `lines` says of draft acceptance, of all engines and starts of the server in it, added up.

    One pass in constant memory. `name` is what the log is called in the recording and in messages. Accepted and
    drafted tokens are exact; draft steps and tokens by position are worked out from rounded figures, and
    Recording.exact says whether other numbers would have been printed alike.

    Raises:
        BadInput: the log cannot be read.
        CannotSay: no line in it counts drafts, or none that can be used.
    """
    reader = _Reader()
    try:
        for text in bounded_lines(lines, _WORTH_READING):
            if line := log_line(text):
                reader.read(line)
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror or error}", "give the log of a vLLM server") from None
    return reader.recording(name)


class _Reader:
    def __init__(self) -> None:
        self._starts = ServerStarts()
        self._runs = Runs()
        self._engines = Engines()
        self._clock = Clock()
        self._trend = Trend()
        self._tally = Tally()

    def read(self, line: LogLine) -> None:
        if is_start(line.message):
            self._starts.read(line.process, line.message)
            self._runs.begin(line.process)
        elif line.file not in _FILES_ON_STATISTICS:
            return
        elif line.message.startswith((v1_figures.START, v0_totals.START)):
            self._read_drafts(line)
        elif line.message.startswith("DiffusionDecoding metrics: "):
            self._tally.of_diffusion += 1
        else:
            self._engines.name(line.process, line.message)

    def _read_drafts(self, line: LogLine) -> None:
        try:
            counted = self._of_v0(line) if line.message.startswith(v0_totals.START) else self._of_v1(line)
        except Unreadable:
            self._tally.unreadable += 1
        except Contradictory:
            self._tally.contradictory += 1
        else:
            if counted is not None:
                self._add(counted, line)

    def _of_v0(self, line: LogLine) -> DraftCounters:
        total = v0_totals.v0_total(line.message)
        self._tally.of_v0 += 1
        return self._runs.since_last(line.process, total)

    def _of_v1(self, line: LogLine) -> DraftCounters | None:
        """None where nothing tells the number of draft steps."""
        figures = v1_figures.figures_in(line.message)
        if figures.tell_steps:
            found = worked_out(figures)
            self._tally.ambiguous += not found.unique
            return found.counted
        positions = self._starts.server_of(line.process).positions
        if not positions:
            self._tally.without_steps += 1
            self._tally.tokens_without_steps += figures.drafted
            return None
        self._tally.steps_assumed += 1
        return DraftCounters(-(-figures.drafted // positions), figures.drafted, figures.accepted, ())

    def _add(self, counted: DraftCounters, line: LogLine) -> None:
        self._tally.used += 1
        if counted.accepted_at:
            self._tally.positions.add(len(counted.accepted_at))
        self._runs.counts(line.process)
        self._engines.add(self._starts.server_of(line.process).model, line.process, counted)
        self._trend.add(TrendPoint(line.moment.at, self._clock.seconds_until(line.moment), counted))

    def recording(self, name: str) -> Recording:
        """Raises CannotSay where no line could be used."""
        if not self._tally.used:
            raise no_counts(name, self._tally, self._starts.speculates)
        parts, taken_over = self._engines.parts(name)
        return Recording(
            source=SourceKind.LOG,
            where=(name,),
            seconds=self._clock.total or None,
            parts=parts,
            trend=self._trend.points,
            exact=self._tally.exact,
            notes=tuple(self._notes(self._runs.restarts + taken_over)),
        )

    def _notes(self, restarts: int) -> Iterator[str]:
        yield from self._tally.how_counted()
        if restarts:
            yield f"the server began anew {_times(restarts)} in the log; the counts of its runs are added up"
        if self._engines.aggregated:
            yield "the server prints the counts of its engines together, so none is seen by itself"
        yield from self._tally.changed_positions()
        if self._clock.set_back:
            yield f"the log's clock was set back {_times(self._clock.set_back)}; the span is without these stretches"
        yield from self._tally.left_out()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
