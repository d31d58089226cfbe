"""What a user sees of a server: its command, the stages of start-up, how it ended."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rich.text import Text

from dspark_cli.facts.server_run import ServerRun
from dspark_cli.report.console import message_console, printable, result_console
from dspark_cli.serving.command import ServeCommand
from dspark_cli.sources.vllm_advice import next_step_for
from dspark_cli.sources.vllm_log import Stage, address_in, cause_of_death, stage_of

LONGEST_CAUSE_LINE = 240
SLOW_START = "starting (vLLM's imports alone can take a minute)"


def show_command(command: ServeCommand, dry_run: bool) -> None:
    """A dry run's command is its result; otherwise it is a message before the server's own."""
    console = result_console() if dry_run else message_console()
    console.print(Text(printable(command.shown())), soft_wrap=True)
    if dry_run:
        config = json.dumps(command.as_shown().speculative_config, indent=2)
        console.print(Text(f"\nspeculative config ({command.vllm}):"))
        for line in config.splitlines():
            console.print(Text(printable(line)), soft_wrap=True)


class StartupDisplay:
    """Follows a server's log: a spinner with the stage on a terminal, a line a stage elsewhere."""

    def __init__(self, log: Path, show_server_log: bool) -> None:
        self._console = message_console()
        self._status = self._console.status(Text("starting")) if self._console.is_terminal else None
        self._log = log
        self._show_server_log = show_server_log
        self._began = time.monotonic()
        self._stages: dict[str, float] = {}
        self._address: str | None = None
        self._signals: list[str] = []

    def __enter__(self) -> "StartupDisplay":
        self._console.print(Text(printable(f"log: {self._log}")), soft_wrap=True)
        if self._status:
            self._status.start()
        self._enter(Stage.STARTING)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._status:
            self._status.stop()

    def on_line(self, line: str) -> None:
        if Stage.READY in self._stages:
            if self._show_server_log:
                self._console.print(Text(printable(line)), soft_wrap=True)
            return
        self._address = self._address or address_in(line)
        stage = stage_of(line)
        if stage and stage not in self._stages:
            self._enter(stage)

    def on_signal(self, number: int) -> None:
        """The server's own noise while it stops is of no use to the user; its log has it."""
        self._show_server_log = False
        self._signals.append(signal.Signals(number).name)
        self._console.print(Text(f"passing {signal.Signals(number).name} on to the server"))

    def ended(self, return_code: int) -> ServerRun:
        """`return_code` is -N where signal N killed the server."""
        killed_by = signal.Signals(-return_code).name if return_code < 0 else None
        exit_code = return_code if return_code >= 0 else 128 - return_code
        run = ServerRun(exit_code, killed_by, self._log, self._address, self._stages, self._elapsed(), self._signals)
        if run.ended_as_asked or run.was_ready:
            return run
        try:
            with self._log.open(errors="replace") as lines:
                return replace(run, cause=cause_of_death(lines))
        except OSError:
            return run

    def _enter(self, stage: Stage) -> None:
        self._stages[stage] = self._elapsed()
        where = f" at {self._address}" if stage is Stage.READY and self._address else ""
        told = SLOW_START if stage is Stage.STARTING else stage
        self._console.print(Text(printable(f"{self._stages[stage]:6.1f} s  {told}{where}")))
        if self._status:
            self._status.stop() if stage is Stage.READY else self._status.update(Text(stage))

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._began, 3)


def show_end(run: ServerRun) -> None:
    console = message_console()
    when = "" if run.was_ready else " before it was ready"
    if run.ended_as_asked:
        console.print(Text(printable(f"the server has stopped{when}; its log: {run.log}")), soft_wrap=True)
        return
    by = f"by {run.killed_by}" if run.killed_by else f"with exit code {run.exit_code}"
    console.print(Text.assemble(("error: ", "bold red"), f"the server ended {by}{when}"))
    for line in run.cause:
        console.print(Text(f"  {printable(_cut(line))}"), soft_wrap=True)
    advice = next_step_for(" ".join(run.cause))
    step = f"{advice}; the whole log: {run.log}" if advice else f"read the whole log: {run.log}"
    console.print(Text.assemble(("next: ", "bold"), printable(step)), soft_wrap=True)


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_CAUSE_LINE else f"{line[:LONGEST_CAUSE_LINE]}..."
