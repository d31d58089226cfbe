"""A tune over cheap servers (tests/tuned_server.py): for a test to drive, or as a program for a test to kill.

`python -m tests.cheap_tune RESULTS` prints a line at each stage.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dspark_cli.facts.tuning import NO_BOUND, Candidate, FailedCandidate, Load, Measurement, TuningQuestion
from dspark_cli.serving.background import in_background, wait_until_ready
from dspark_cli.sources.tuning_file import TuningFile, open_tuning_file
from dspark_cli.tuning.campaign import Campaign
from dspark_cli.tuning.candidates import all_candidates
from dspark_cli.tuning.launch import RunningServer, free_port
from dspark_cli.tuning.load import Texts, built_in
from dspark_cli.tuning.plan import Outlook, TuningPlan, Visit

LOAD = Load("builtin", prompts=10, prompt_tokens=64, output_tokens=16, seed=0)
QUESTION = TuningQuestion("target", "drafter", "dflash", "vllm 0", "none", LOAD, (), None, "validity")
READY_WITHIN_S = 60.0


@dataclass
class CheapLauncher:
    """Starts tests.tuned_server; the candidates in `dying` end at once, those in `failing` when they are asked."""

    dying: frozenset[int] = frozenset()
    started: list[Candidate] = field(default_factory=list)

    @contextmanager
    def __call__(self, candidate: Candidate, log: Path, on_line: Callable[[str], None]) -> Iterator[RunningServer]:
        self.started.append(candidate)
        port = free_port()
        program = ["-m", "tests.tuned_server", str(port), str(candidate.tokens), str(log)]
        if candidate.tokens in self.dying:
            program = ["-c", "raise RuntimeError('no room for so many tokens')"]
        began = time.monotonic()
        with in_background([sys.executable, *program], {}, log, on_line) as process:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(process, url, READY_WITHIN_S)
            yield RunningServer(url, time.monotonic() - began, process)


class Told:
    """Keeps what a tune says of itself."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def say(self, stage: str) -> None:
        self.stages.append(stage)

    def on_visit(self, visit: Visit, left: Outlook, left_s: float | None) -> None:
        self.say(f"starting {visit.candidate.tokens}")

    def on_line(self, line: str) -> None:
        pass

    def on_ready(self, startup_s: float) -> None:
        self.say("ready")

    def sending(self, what: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        return self._sending(what)

    @contextmanager
    def _sending(self, what: str) -> Iterator[Callable[[], None]]:
        self.say(what)
        yield lambda: None

    def on_measured(self, measurement: Measurement) -> None:
        self.say(f"measured {measurement.candidate.tokens}")

    def on_failed(self, failed: FailedCandidate) -> None:
        self.say(f"failed {failed.candidate.tokens}")


class Printed(Told):
    def say(self, stage: str) -> None:
        print(stage, flush=True)  # noqa: T201


def plan_of(tokens: tuple[int, ...] = (1, 2, 3), measure_all: bool = False, control: bool = False) -> TuningPlan:
    return TuningPlan(all_candidates(tokens, None), (1, 2), NO_BOUND, measure_all, control)


def campaign(
    file: TuningFile, plan: TuningPlan, launcher: CheapLauncher, told: Told, most_s: float | None = None
) -> Campaign:
    return Campaign(
        plan=plan,
        load=LOAD,
        texts=Texts(LOAD, None),
        tool=built_in,
        launch=launcher,
        file=file,
        logs=file.path.parent / "logs",
        progress=told,
        request_timeout_s=30.0,
        most_s=most_s,
    )


def main() -> None:
    with open_tuning_file(Path(sys.argv[1]), QUESTION) as file:
        campaign(file, plan_of((1, 2)), CheapLauncher(), Printed()).run()
        print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
