"""What a stress test found, and what that is worth on the device it ran on."""

from dataclasses import dataclass

from dspark_cli.errors import ExitCode
from dspark_cli.stress.device import Device


@dataclass(frozen=True)
class FailingCase:
    case: str
    wrong_runs: int


@dataclass(frozen=True)
class KernelVerdict:
    """What a sweep found of one kernel: `wrong_runs` of `runs` differed from the reference, in the cases of `failing`
    (smallest first). `smallest` is the smallest case found that fails, if need be smaller than any of the sweep."""

    kernel: str
    cases: int
    runs: int
    wrong_runs: int
    failing: list[FailingCase]
    smallest: str | None


@dataclass(frozen=True)
class SanitizerVerdict:
    """What compute-sanitizer said of a quick sweep. `errors` is None where it did not finish."""

    tool: str
    errors: int | None
    summary: str


@dataclass(frozen=True)
class OrderingVerdict:
    """Of `schedules` interleavings (all there are for small rows, random ones for large), `wrong` left a wrong row."""

    ordering: str
    guarded: bool
    schedules: int
    wrong: int
    counter_example: list[str] | None


@dataclass(frozen=True)
class StressReport:
    """`control` is the shift without its barrier; None where races cannot show, and then `orderings` has the lane
    model's word instead."""

    device: Device
    seed: int
    iterations: int
    kernels: list[KernelVerdict]
    control: KernelVerdict | None
    orderings: list[OrderingVerdict]
    sanitizers: list[SanitizerVerdict]

    @property
    def sound(self) -> bool:
        return not (
            any(verdict.wrong_runs for verdict in self.kernels)
            or any(verdict.wrong for verdict in self.orderings if verdict.guarded)
            or any(verdict.errors for verdict in self.sanitizers)
        )

    @property
    def exit_code(self) -> ExitCode:
        if not self.sound:
            return ExitCode.FINDINGS
        blind = self.control is not None and self.control.wrong_runs == 0
        unfinished = any(verdict.errors is None for verdict in self.sanitizers)
        return ExitCode.CANNOT_SAY if blind or unfinished else ExitCode.FINE
