"""How the patches stand: on one vLLM with the evidence, and on all recorded releases as one table."""

from collections import Counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dspark_cli.patches.matrix import ReleaseTable
from dspark_cli.patches.patch import Judgement, SourceVerdict, Status
from dspark_cli.report.console import printable, result_console

STYLES = {
    Status.NATIVE: "bold green",
    Status.APPLIES: "bold green",
    Status.NOT_NEEDED: "bold",
    Status.UNSUPPORTED: "bold yellow",
    Status.FAILED: "bold red",
}
LETTERS = {
    Status.NATIVE: "N",
    Status.APPLIES: "A",
    Status.NOT_NEEDED: "-",
    Status.UNSUPPORTED: "?",
    Status.FAILED: "X",
}


def show_verdict(verdict: SourceVerdict) -> None:
    console = result_console()
    console.print(Text(printable(f"vLLM {verdict.version or '(version unknown)'} in {verdict.source}")))
    table = Table(box=None, pad_edge=False, show_header=False)
    for judgement in verdict.judgements:
        table.add_row(Text(judgement.status, STYLES[judgement.status]), _told(judgement))
    console.print(table)
    counted = Counter(judgement.status for judgement in verdict.judgements)
    console.print(Text("\n" + ", ".join(f"{counted[status]} {status}" for status in Status if counted[status])))


def _told(judgement: Judgement) -> Group:
    lines = [Text.assemble((printable(judgement.patch), "bold"), printable(f": {judgement.title}"))]
    lines.append(Text(printable(judgement.evidence)))
    if judgement.status in (Status.UNSUPPORTED, Status.FAILED):
        warned = f"warned of by {judgement.warned_by}" if judgement.warned_by else "nothing in this tool warns of it"
        lines.append(Text(printable(warned)))
        lines.extend(Text(printable(f"see {reference}")) for reference in judgement.references)
    return Group(*lines)


def show_releases(table: ReleaseTable) -> None:
    console = result_console()
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    grid.add_column("patch")
    for release in table.releases:
        grid.add_column(short(release).replace(".", ".\n", 1))
    grid.add_column("native\nsince")
    for patch in table.patches:
        cells = [_letter(patch.statuses.get(release)) for release in table.releases]
        grid.add_row(patch.name, *cells, short(patch.native_since) if patch.native_since else "")
    console.print(grid)
    console.print(Text(f"\n{legend()}"))


def legend() -> str:
    return ", ".join(f"{letter} {status}" for status, letter in LETTERS.items())


def _letter(status: Status | None) -> Text:
    return Text() if status is None else Text(LETTERS[status], STYLES[status])


def short(release: str) -> str:
    """0.33 for 0.33.0: columns are dear."""
    return release.removesuffix(".0") if release.count(".") == 2 else release
