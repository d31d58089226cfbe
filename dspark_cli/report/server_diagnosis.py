"""What a running server says of itself, as two tables; all of it comes from outside."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dspark_cli.facts.server_diagnosis import PatchStatus, ServerDiagnosis
from dspark_cli.report.acceptance_words import short
from dspark_cli.report.console import printable, result_console
from dspark_cli.report.draft_context import context_line

LONGEST_EVIDENCE = 200
STYLES = {"native": "green", "applies": "green", "failed": "bold red", "unsupported": "yellow"}


def show_server_diagnosis(found: ServerDiagnosis) -> None:
    console = result_console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("server", Text(printable(found.where)))
    table.add_row("vLLM", Text(short(found.vllm)))
    table.add_row("dspark-tool", Text(short(found.dspark_tool)))
    table.add_row("engines", f"{found.engines:,}")
    console.print(table)
    console.print()
    console.print(Text(_context(found)))
    console.print()
    console.print(_patches(found.patches) if found.patches else Text("patches: the server does not tell them"))
    for problem in found.problems:
        console.print(Text.assemble(("problem: ", "bold red"), short(problem, LONGEST_EVIDENCE)))


def _context(found: ServerDiagnosis) -> str:
    if found.draft_context is None:
        return f"draft context: not known, {short(found.no_context or 'the server does not say why', LONGEST_EVIDENCE)}"
    return context_line(found.draft_context)


def _patches(patches: Sequence[PatchStatus]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("patch", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("evidence", overflow="fold")
    for patch in patches:
        status = Text(short(patch.status, 20), STYLES.get(patch.status, ""))
        table.add_row(Text(short(patch.name)), status, Text(short(patch.evidence, LONGEST_EVIDENCE)))
    return table
