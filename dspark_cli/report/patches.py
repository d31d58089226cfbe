"""How the patches stand: on one vLLM, briefly or with the evidence, and on all recorded releases as one table."""

from collections import Counter
from collections.abc import Mapping

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dspark_cli.patches.matrix import Matrix, ReleaseTable, short
from dspark_cli.patches.next_steps import next_step
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


MEANINGS = {
    Status.NATIVE: "this vLLM has it itself",
    Status.APPLIES: "fits this vLLM; serve adds it where the runner and the settings need it",
    Status.NOT_NEEDED: "what it mends cannot happen here",
    Status.UNSUPPORTED: "missing here, and no patch is known to be safe",
    Status.FAILED: "its self-test failed",
}
WORST_FIRST = (Status.FAILED, Status.UNSUPPORTED, Status.APPLIES, Status.NATIVE, Status.NOT_NEEDED)
TO_DO = (Status.FAILED, Status.UNSUPPORTED)


def show_verdict(verdict: SourceVerdict, matrix: Matrix, a_start_here: str | None) -> None:
    """A line a patch, by status, and what to do about those that are missing. `a_start_here`: what `serve` would do."""
    console = result_console()
    console.print(_source(verdict))
    for status in WORST_FIRST:
        judgements = [judgement for judgement in verdict.judgements if judgement.status is status]
        if not judgements:
            continue
        console.print(Text.assemble("\n", (str(status), STYLES[status]), f": {MEANINGS[status]}"))
        width = max(len(judgement.patch) for judgement in judgements)
        for judgement in judgements:
            line = Text(printable(f"  {judgement.patch:{width}}  {judgement.title}"))
            console.print(line, no_wrap=True, overflow="ellipsis")
            if status in TO_DO:
                step = Text.assemble(("next: ", "bold"), printable(next_step(judgement, verdict.version, matrix)))
                console.print(Padding(step, (0, 0, 0, 4), expand=False))
    console.print(Text(f"\n{counted(verdict)}"))
    if a_start_here is not None:
        console.print(Text(printable(a_start_here)))
    console.print(Text("what says so, by file and symbol: dspark-tool patches --evidence"))


def show_evidence(verdict: SourceVerdict) -> None:
    console = result_console()
    console.print(_source(verdict))
    table = Table(box=None, pad_edge=False, show_header=False)
    for judgement in verdict.judgements:
        table.add_row(Text(judgement.status, STYLES[judgement.status]), _told(judgement))
    console.print(table)
    console.print(Text(f"\n{counted(verdict)}"))


def counted(verdict: SourceVerdict) -> str:
    return count_words(Counter(judgement.status for judgement in verdict.judgements))


def count_words(numbers: Mapping[Status, int]) -> str:
    words = {Status.APPLIES: "apply"}
    return ", ".join(
        f"{numbers[status]} {words.get(status, status) if numbers[status] > 1 else status}"
        for status in Status
        if status in numbers
    )


def _source(verdict: SourceVerdict) -> Text:
    return Text(printable(f"vLLM {verdict.version or '(version unknown)'} in {verdict.source}"))


def _told(judgement: Judgement) -> Group:
    lines = [Text.assemble((printable(judgement.patch), "bold"), printable(f": {judgement.title}"))]
    lines.append(Text(printable(judgement.evidence)))
    if judgement.status in TO_DO:
        warned = f"warned of by {judgement.warned_by}" if judgement.warned_by else "nothing in this tool warns of it"
        lines.append(Text(printable(warned)))
        lines.extend(Text(printable(f"see {reference}")) for reference in judgement.references)
    return Group(*lines)


def show_releases(table: ReleaseTable) -> None:
    """Columns are dear: what all releases begin with stands once, before them."""
    console = result_console()
    majors = {release.partition(".")[0] for release in table.releases}
    common = f"{majors.pop()}." if len(majors) == 1 else ""
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    grid.add_column(f"patch (columns: vLLM {common}x)" if common else "patch")
    for release in table.releases:
        grid.add_column(short(release).removeprefix(common), no_wrap=True)
    grid.add_column("native since", no_wrap=True)
    for patch in table.patches:
        cells = [_letter(patch.statuses.get(release)) for release in table.releases]
        grid.add_row(patch.name, *cells, short(patch.native_since) if patch.native_since else "")
    console.print(grid)
    console.print(Text(f"\n{legend()}"))


def legend() -> str:
    return ", ".join(f"{letter} {status}" for status, letter in LETTERS.items())


def _letter(status: Status | None) -> Text:
    return Text() if status is None else Text(LETTERS[status], STYLES[status])
