"""What a running server says of itself: what runs, and what does not work; all of it comes from outside."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from dspark_cli.facts.server_diagnosis import PatchStatus, ServerDiagnosis
from dspark_cli.patches.patch import Status
from dspark_cli.report.acceptance_words import short
from dspark_cli.report.console import printable, result_console
from dspark_cli.report.draft_context import context_line
from dspark_cli.report.patches import count_words

LONGEST_EVIDENCE = 200
NOT_TOLD = "the server does not tell"


def show_server_diagnosis(found: ServerDiagnosis) -> None:
    console = result_console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("server", Text(printable(found.where)))
    table.add_row("vLLM", Text(short(found.vllm)))
    table.add_row("dspark-tool", Text(short(found.dspark_tool)))
    table.add_row("engines", f"{found.engines:,}")
    table.add_row("put on", Text(NOT_TOLD if found.put_on is None else _names(found.put_on)))
    table.add_row("failed", Text(_names(patch.name for patch in found.patches if patch.status == Status.FAILED)))
    table.add_row("patches", Text(_counted(found.patches)))
    console.print(table)
    console.print()
    console.print(Text(_context(found)))
    console.print()
    for problem in found.problems:
        console.print(Text.assemble(("problem: ", "bold red"), short(problem, LONGEST_EVIDENCE)))
    if not found.problems:
        console.print(Text("no problem found", "green"))


def _context(found: ServerDiagnosis) -> str:
    if found.draft_context is None:
        return f"draft context: not known, {short(found.no_context or 'the server does not say why', LONGEST_EVIDENCE)}"
    return context_line(found.draft_context)


def _names(names: Iterable[str]) -> str:
    return ", ".join(short(name) for name in names) or "nothing"


def _counted(patches: Sequence[PatchStatus]) -> str:
    """How the patches stand; words that are no status are counted in none."""
    if not patches:
        return NOT_TOLD
    numbers = Counter(Status(patch.status) for patch in patches if patch.status in set(Status))
    return f"{count_words(numbers)} on this vLLM (why: dspark-tool patches --evidence, in the server's environment)"
