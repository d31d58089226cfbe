"""The stress test's verdicts as a table, and what they are worth on this device."""

from rich.table import Table
from rich.text import Text

from dspark_cli.report.console import printable, result_console
from dspark_cli.stress.verdict import OrderingVerdict, StressReport


def show_stress(report: StressReport) -> None:
    console, device = result_console(), report.device
    versions = f"torch {device.torch}, Triton {device.triton}"
    console.print(Text(printable(f"Block-table kernels on {device.name}, {versions}, seed {report.seed}")))
    console.print(_runs(report))
    for verdict in report.kernels:
        if verdict.smallest:
            again = f"dspark-tool stress-shift --kernel {verdict.kernel} --seed {report.seed} --case {verdict.smallest}"
            console.print(Text.assemble(("wrong: ", "bold red"), f"{verdict.kernel}; to see it again:\n  {again}"))
    if report.orderings:
        console.print()
        console.print(_orderings(report.orderings))
    for sanitizer in report.sanitizers:
        console.print(Text(printable(f"compute-sanitizer {sanitizer.tool}: {sanitizer.summary}")))
    console.print(Text(_worth(report)))


def _runs(report: StressReport) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel")
    for heading in ("cases", "runs", "wrong cases", "wrong runs"):
        table.add_column(heading, justify="right")
    controls = [] if report.control is None else [report.control]
    for verdict in [*report.kernels, *controls]:
        counts = (verdict.cases, verdict.runs, len(verdict.failing), verdict.wrong_runs)
        table.add_row(verdict.kernel, *(f"{count:,}" for count in counts))
    return table


def _orderings(orderings: list[OrderingVerdict]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("lane model (a model of the warps, not the kernel)")
    table.add_column("schedules", justify="right")
    table.add_column("wrong", justify="right")
    for verdict in orderings:
        table.add_row(verdict.ordering, f"{verdict.schedules:,}", f"{verdict.wrong:,}")
    return table


def _worth(report: StressReport) -> str:
    if report.control is None:
        return "The interpreter checks values; it cannot show races. Run this on the GPU that will serve."
    if report.control.wrong_runs == 0:
        return "The control never went wrong, so this sweep could not have found a race on this GPU."
    return (
        f"The control (no barrier) went wrong in {report.control.wrong_runs:,} of {report.control.runs:,} runs, "
        "so a race would have shown here."
    )
