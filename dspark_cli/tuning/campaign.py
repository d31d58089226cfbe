"""A tune from its first server to its last: what is measured is on the disk before the next server starts."""

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Protocol
from zlib import crc32

import psutil

from dspark_cli.errors import NotFit, ToolError
from dspark_cli.facts.draft_counters import NOTHING
from dspark_cli.facts.traffic import Traffic
from dspark_cli.facts.tuning import Candidate, FailedCandidate, Load, Measurement
from dspark_cli.serving.background import ServerDied
from dspark_cli.sources.acceptance_metrics import between, read_traffic
from dspark_cli.sources.completions import CompletionsServer
from dspark_cli.sources.machine_use import MachineUse
from dspark_cli.sources.probed_server import completions_address, finished_in, server_facts, settled_snapshot
from dspark_cli.sources.server_metrics import scrape
from dspark_cli.sources.tuning_file import TuningFile
from dspark_cli.tuning.launch import Launch, RunningServer
from dspark_cli.tuning.load import BUILT_IN, LoadTool, Texts, warm_up
from dspark_cli.tuning.plan import Outlook, TuningPlan, Visit, next_visit, outlook

ASKING_MAY_TAKE_S = 30.0
DIES_WITHIN_S = 2.0
"""After its engine a server may live on for a moment."""
HOUR_MINUTE = "%Y-%m-%dT%H:%M:%SZ"


class TuningProgress(Protocol):
    """Is told how far the tune is."""

    def on_visit(self, visit: Visit, left: Outlook, left_s: float | None) -> None: ...

    def on_line(self, line: str) -> None: ...

    def on_ready(self, startup_s: float) -> None: ...

    def sending(self, what: str, total: int) -> AbstractContextManager[Callable[[], None]]: ...

    def on_measured(self, measurement: Measurement) -> None: ...

    def on_failed(self, failed: FailedCandidate) -> None: ...


@dataclass
class Campaign:
    """One run. What it measured is in `file`; `failed` and the fields under it say how it ended."""

    plan: TuningPlan
    load: Load
    texts: Texts
    tool: LoadTool
    launch: Launch
    file: TuningFile
    logs: Path
    progress: TuningProgress
    request_timeout_s: float
    key: str | None = None
    most_s: float | None = None
    failed: dict[Candidate, FailedCandidate] = field(default_factory=dict)
    interrupted: bool = False
    stopped: str | None = None
    added: int = 0
    reused: int = 0
    began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Measure until the plan is done, the time is over or the user interrupts.

        Raises:
            NotFit: the results file cannot be written any more.
        """
        self.reused = len(self.file.measurements)
        try:
            while (visit := next_visit(self.plan, self.file.measurements, self.failed.keys())) is not None:
                if self._time_is_over():
                    self.stopped = f"its time of {(self.most_s or 0) / 60:g} minutes was over"
                    return
                left = outlook(self.plan, self.file.measurements, self.failed.keys())
                self.progress.on_visit(visit, left, self._seconds_left(left))
                self._visit(visit)
        except KeyboardInterrupt:
            self.interrupted = True

    def _visit(self, visit: Visit) -> None:
        try:
            with self.launch(visit.candidate, self._log(visit), self.progress.on_line) as server:
                self.progress.on_ready(server.startup_s)
                self._measure_server(visit, server)
        except _ResultsFull as full:
            raise full.why from None
        except ToolError as error:
            failed = FailedCandidate(visit.candidate, error.what, error.next_step)
            self.failed[visit.candidate] = failed
            self.file.add_failure(failed)
            self.progress.on_failed(failed)

    def _measure_server(self, visit: Visit, server: RunningServer) -> None:
        try:
            facts = server_facts(server.url, None, self.key, ASKING_MAY_TAKE_S)
            address = completions_address(server.url)
            for number, concurrency in enumerate(visit.concurrencies):
                if number and self._time_is_over():  # a server that was started is used
                    return
                completions = CompletionsServer(address, facts.model, self.key, self.request_timeout_s, concurrency)
                self.texts.fit_to(facts, completions, self._most_texts())
                measurement = self._measure(visit, server, completions)
                try:
                    self.file.add(measurement)
                except NotFit as error:
                    raise _ResultsFull(error) from None
                self.added += 1
                self.progress.on_measured(measurement)
        except ToolError as error:
            if not isinstance(error, ServerDied) and server.process.wait(DIES_WITHIN_S) is not None:
                raise server.process.death() from None  # which says more than that nobody answers
            raise

    def _measure(self, visit: Visit, server: RunningServer, completions: CompletionsServer) -> Measurement:
        concurrency = completions.concurrency
        wanted = self.load.requests(concurrency)
        log = self._log(visit, f"-{self.load.tool}-{concurrency}-at-a-time")
        texts = self.texts.at_least(wanted + concurrency)
        warm_up(completions, texts[wanted:], self.progress.sending)
        speculates = visit.candidate.speculates
        before, _ = settled_snapshot(server.url, None, ASKING_MAY_TAKE_S)
        traffic_before = _traffic(server.url)
        use = MachineUse(_ours(server))
        sent = self.tool(completions, texts[:wanted], self.load, self.progress.sending, log)
        used_by_others = use.by_others(_ours(server)) if self.load.tool == BUILT_IN else None
        server.process.require_alive()
        if len(sent.requests) < wanted // 2 or not sent.requests:
            raise NotFit(
                f"{len(sent.failed)} requests failed: {sent.failed[0] if sent.failed else 'no answer'}", "see its log"
            )
        finished = finished_in(before) + len(sent.requests) if speculates else None
        after, _ = settled_snapshot(server.url, finished, ASKING_MAY_TAKE_S)
        recording = between([before], [after])
        if any(part.restarted for part in recording.parts) or (speculates and not recording.parts):
            raise NotFit("the server's counters began anew while it was measured", "see its log: did it restart?")
        traffic = _traffic(server.url) - traffic_before
        return Measurement(
            candidate=visit.candidate,
            concurrency=concurrency,
            control=visit.control,
            seconds=sent.seconds,
            requests=sent.requests,
            failed=len(sent.failed),
            counted=(sent.counted or recording.counted) if speculates else NOTHING,
            prefix_hit_rate=traffic.prefix_hit_rate,
            other_requests=_others(traffic, len(sent.requests) + len(sent.failed)),
            startup_s=round(server.startup_s, 3),
            measured_at=datetime.now(UTC).strftime(HOUR_MINUTE),
            used_by_others=None if used_by_others is None else round(used_by_others, 4),
        )

    def _most_texts(self) -> int:
        return max(self.load.requests(concurrency) + concurrency for concurrency in self.plan.concurrencies)

    def _log(self, visit: Visit, of: str = "") -> Path:
        """The server's own, or that `of` what is done with it."""
        also = "" if visit.candidate.also is None else f"-{crc32(visit.candidate.also.encode()):08x}"
        name = f"{visit.candidate.tokens}-tokens{also}{'-again' if visit.control else ''}{of}.log"
        with contextlib.suppress(OSError):
            self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / name

    def _time_is_over(self) -> bool:
        return self.most_s is not None and time.monotonic() - self.began > self.most_s

    def _seconds_left(self, left: Outlook) -> float | None:
        a_server = seconds_a_server(list(self.file.measurements.values()), self.plan.concurrencies)
        return None if a_server is None else a_server * (left.least + left.most) / 2


class _ResultsFull(Exception):
    """Nothing more can be kept: no candidate's fault."""

    def __init__(self, why: NotFit) -> None:
        super().__init__(why.what)
        self.why = why


def seconds_a_server(measured: Sequence[Measurement], concurrencies: Sequence[int]) -> float | None:
    """What a server took so far: its start and all loads; None before the first."""
    if not measured:
        return None
    loads = 0.0
    for concurrency in concurrencies:
        known = [each.seconds for each in measured if each.concurrency == concurrency]
        loads += fmean(known) if known else fmean(each.seconds for each in measured)
    return fmean(each.startup_s for each in measured) + loads


def _ours(server: RunningServer) -> list[psutil.Process]:
    return [*server.process.session.members(), psutil.Process()]


def _traffic(url: str) -> Traffic:
    engines = list(read_traffic(scrape(url, ASKING_MAY_TAKE_S)).values())
    total = engines[0] if engines else Traffic()
    for each in engines[1:]:
        total += each
    return total


def _others(traffic: Traffic, ours: int) -> int | None:
    return None if traffic.finished_requests is None else max(0, traffic.finished_requests - ours)
