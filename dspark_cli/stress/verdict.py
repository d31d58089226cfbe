"""What a stress test found, and what that is worth on the device it ran on."""

from dataclasses import dataclass

from dspark_cli.errors import ExitCode
from dspark_cli.stress.device import Device


@dataclass(frozen=True)
class KernelVerdict:
    """What a sweep found of one kernel. `wrong_runs` of `runs` differed from the reference; `failing_cases` of `cases`
    had such a run, and `smallest` is the smallest case found that has one."""

    kernel: str
    cases: int
    runs: int
    failing_cases: int
    wrong_runs: int
    smallest: str | None


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

    @property
    def sound(self) -> bool:
        return not any(verdict.wrong_runs for verdict in self.kernels) and not any(
            verdict.wrong for verdict in self.orderings if verdict.guarded
        )

    @property
    def exit_code(self) -> ExitCode:
        if not self.sound:
            return ExitCode.FINDINGS
        blind = self.control is not None and self.control.wrong_runs == 0
        return ExitCode.CANNOT_SAY if blind else ExitCode.FINE
