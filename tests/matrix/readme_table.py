"""The README's table of patches, made from the matrix, between two markers."""

from dspark_cli.patches.matrix import PatchHistory, ReleaseTable, short
from dspark_cli.report.patches import LETTERS, legend
from tests.paths import TESTS

README = TESTS.parent / "README.md"
BEGIN, END = "<!-- patches -->", "<!-- /patches -->"


def readme_table(table: ReleaseTable) -> str:
    """The block with its markers."""
    heading = ["patch", *map(short, table.releases), "with it"]
    rows = [
        [f"`{patch.name}`", *(_letter(patch, release) for release in table.releases), patch.title]
        for patch in table.patches
    ]
    lines = [_row(heading), _row(["---"] * len(heading)), *map(_row, rows)]
    return "\n".join([BEGIN, "", *lines, "", legend(), "", END])


def table_in_readme() -> str | None:
    """The block as README.md has it; None where it has none."""
    text = README.read_text("utf-8")
    if BEGIN not in text or END not in text:
        return None
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def put_table(block: str) -> bool:
    """Replace the README's block; whether there is one."""
    old = table_in_readme()
    if old is not None:
        README.write_text(README.read_text("utf-8").replace(old, block), "utf-8")
    return old is not None


def _letter(patch: PatchHistory, release: str) -> str:
    status = patch.statuses.get(release)
    return "" if status is None else LETTERS[status]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
