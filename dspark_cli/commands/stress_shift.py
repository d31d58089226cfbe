"""`dspark-tool stress-shift`: prove the block-table kernels on the local GPU."""

from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import BadInput

if TYPE_CHECKING:
    from dspark_cli.stress.case import StressCase
    from dspark_cli.stress.device import Device
    from dspark_cli.stress.verdict import StressReport

CONTROL = "control (no barrier)"
GPU_ITERATIONS = 50
INTERPRETER_ITERATIONS = 1


def stress_shift(
    kernel: Annotated[
        str | None, typer.Option(help="Only this kernel; see the table of a run for their names.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Runs of each case; 50 on a GPU, 1 in the interpreter.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws block ids, shifts and mappings.")] = 0,
    case: Annotated[str | None, typer.Option(help="Only this case, as a failing run prints it.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="On a GPU: small tables only.")] = False,
    control: Annotated[bool, typer.Option(help="On a GPU: run the control that must go wrong.")] = True,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="Also a quick sweep under compute-sanitizer.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Stress the block-table kernels against a reference.

    On a GPU, a shift without its barrier runs beside as a control that must go wrong. Without one, Triton's interpreter
    checks the values, and a model of the warps checks the ordering. Exit code 1 where a kernel was wrong, 4 where the
    control never was.

    \b
    dspark-tool stress-shift
    dspark-tool stress-shift --kernel shift --iterations 1000 --seed 7
    """
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.stress import show_stress
    from dspark_cli.stress.case import parse_case
    from dspark_cli.stress.device import open_device

    only = None if case is None else parse_case(case)
    device = open_device()
    if sanitize and not device.can_race:
        raise BadInput("--sanitize needs an NVIDIA GPU, and there is none here", "leave --sanitize out")
    report = _stress(device, kernel, only, iterations=iterations, seed=seed, quick=quick, control=control)
    if sanitize:
        report = _with_sanitizers(report)
    if json:
        print_json("stress-shift", report)
    else:
        show_stress(report)
    raise typer.Exit(report.exit_code)


def _stress(
    device: "Device",
    kernel: str | None,
    case: "StressCase | None",
    *,
    iterations: int | None,
    seed: int,
    quick: bool,
    control: bool,
) -> "StressReport":
    from dspark_cli.report.console import progress
    from dspark_cli.stress.lane_orders import explore_orderings
    from dspark_cli.stress.subjects import KERNELS, prepare_unguarded_shift
    from dspark_cli.stress.sweep import stress, sweep_cases
    from dspark_cli.stress.verdict import StressReport

    if kernel is not None and kernel not in KERNELS:
        raise BadInput(f"no kernel {kernel!r}", f"one of: {', '.join(KERNELS)}")
    if case and case.graph and not device.can_race:
        raise BadInput("this case replays a CUDA graph, and there is no GPU here", "run it on a GPU, or with graph=no")
    cases = [case] if case else sweep_cases(large=device.can_race and not quick, graphs=device.can_race)
    runs = iterations or (GPU_ITERATIONS if device.can_race else INTERPRETER_ITERATIONS)
    subjects = {kernel: KERNELS[kernel]} if kernel else dict(KERNELS)
    with_control = control and device.can_race
    if with_control:
        subjects[CONTROL] = prepare_unguarded_shift
    with progress("stressing", total=len(cases) * len(subjects)) as advance:
        verdicts = [
            stress(
                name,
                prepare,
                cases,
                iterations=runs,
                seed=seed,
                device=device.torch_device,
                on_case=advance,
                shrink=name != CONTROL,
            )
            for name, prepare in subjects.items()
        ]
    control_verdict = verdicts.pop() if with_control else None
    moves_in_place = "shift" in subjects or "masking" in subjects
    orderings = explore_orderings(seed) if moves_in_place and not case and not device.can_race else []
    return StressReport(device, seed, runs, verdicts, control_verdict, orderings, sanitizers=[])


def _with_sanitizers(report: "StressReport") -> "StressReport":
    from dataclasses import replace

    from dspark_cli.report.console import waiting
    from dspark_cli.stress.sanitizer import TOOLS, sanitize

    with waiting(f"compute-sanitizer: {' and '.join(TOOLS)} on a quick sweep (minutes)"):
        return replace(report, sanitizers=sanitize(report.seed))
