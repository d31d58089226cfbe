"""How far a tune is: a spinner and bars on a terminal, a line a step elsewhere."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from rich.text import Text

from dspark_cli.facts.tuning import FailedCandidate, LatencyBound, Measurement
from dspark_cli.report.console import message_console, printable, progress
from dspark_cli.report.tuning_words import duration, figure
from dspark_cli.sources.vllm_log import Stage, stage_of
from dspark_cli.tuning.plan import Outlook, Visit


class TuningProgressDisplay:
    """Implements TuningProgress."""

    def __init__(self, bound: LatencyBound) -> None:
        self._console = message_console()
        self._status = self._console.status(Text("starting")) if self._console.is_terminal else None
        self._bound = bound
        self._visits = 0

    def __enter__(self) -> "TuningProgressDisplay":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def on_visit(self, visit: Visit, left: Outlook, left_s: float | None) -> None:
        self._stop()
        self._visits += 1
        servers = str(left.least) if left.least == left.most else f"{left.least} to {left.most}"
        about = "" if left_s is None else f", about {duration(left_s)}"
        again = " again, to see what the machine varies" if visit.control else ""
        self._say(f"server {self._visits}: {visit.candidate.name}{again} ({servers} left{about})")
        if self._status:
            self._status.update(Text("starting"))
            self._status.start()

    def on_line(self, line: str) -> None:
        stage = stage_of(line)
        if self._status and stage and stage is not Stage.READY:
            self._status.update(Text(stage))

    def on_ready(self, startup_s: float) -> None:
        self._stop()
        self._say(f"  ready after {duration(startup_s)}")

    def sending(self, what: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        return progress(f"  {what} ({total} request{'s' * (total != 1)})", total)

    def on_measured(self, measurement: Measurement) -> None:
        drafts = f", acceptance length {measurement.acceptance_length:.2f}" if measurement.draft_steps else ""
        goodput = figure(measurement.goodput(self._bound))
        self._say(f"  {measurement.concurrency} at a time: {goodput} tokens/s{drafts}, {duration(measurement.seconds)}")

    def on_failed(self, failed: FailedCandidate) -> None:
        self._stop()
        self._say(f"  failed: {failed.cause}")

    def _say(self, text: str) -> None:
        self._console.print(Text(printable(text)), soft_wrap=True)

    def _stop(self) -> None:
        if self._status:
            self._status.stop()
