"""Findings, worst first, each with what to do; then what could not be checked."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.report.console import printable

COLORS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold blue"}


def show_findings(console: Console, findings: Sequence[Finding], not_checked: Sequence[NotChecked]) -> None:
    if not findings:
        console.print(Text("\nno findings"))
    for finding in findings:
        severity = (str(finding.severity), COLORS[finding.severity])
        sure = f" ({finding.confidence})" if finding.confidence else ""
        console.print(Text.assemble("\n", severity, f": {printable(finding.id)}{sure}"))
        console.print(indented(Text(printable(finding.what))))
        console.print(indented(Text.assemble(("next: ", "bold"), printable(finding.advice))))
        if finding.fixed_since:
            console.print(indented(Text(printable(f"fixed since vLLM {finding.fixed_since}"))))
    if not_checked:
        console.print(Text("\nnot checked"))
    for why, ids in _by_reason(not_checked).items():
        console.print(indented(Text(printable(f"{', '.join(ids)}: {why}"))))


def _by_reason(not_checked: Sequence[NotChecked]) -> dict[str, list[str]]:
    """The checks that lack the same thing together."""
    reasons: dict[str, list[str]] = {}
    for check in not_checked:
        reasons.setdefault(check.why, []).append(check.id)
    return reasons


def indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)
