"""Findings, worst first, each with what to do; then what could not be checked."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.report.console import printable

COLORS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}


def show_findings(console: Console, findings: Sequence[Finding], not_checked: Sequence[NotChecked]) -> None:
    if not findings:
        console.print(Text("\nno findings"))
    for finding in findings:
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        severity = finding.severity.name.lower()
        table.add_row(Text(f"\n{severity}", style=COLORS[finding.severity]), Text(f"\n{printable(finding.id)}"))
        table.add_row("", Text(printable(finding.what)))
        table.add_row("next", Text(printable(finding.advice)))
        if finding.fixed_since:
            table.add_row("fixed", Text(printable(f"in vLLM {finding.fixed_since}")))
        console.print(table)
    if not_checked:
        console.print(Text("\nnot checked"))
    for check in not_checked:
        console.print(Text(printable(f"  {check.id}: {check.why}")))
