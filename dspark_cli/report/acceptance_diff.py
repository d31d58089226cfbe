"""Two acceptance profiles beside each other."""

from rich.table import Table
from rich.text import Text

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.profiling.difference import AcceptanceDifference, Change
from dspark_cli.report.console import printable, result_console, show_note

COLORS = {Change.BETTER: "green", Change.WORSE: "red", Change.NOT_SHOWN: "", Change.TOO_FEW: "yellow"}
LONGEST_NAME, WIDE = 60, 72


def show_difference(found: AcceptanceDifference) -> None:
    console = result_console()
    for letter, name, profile in (("A", found.a, found.profile_a), ("B", found.b, found.profile_b)):
        console.print(Text(f"{letter}  {printable(name)[:LONGEST_NAME]}: {_length(profile)}"))
    if found.positions:
        console.print(_positions(found, with_intervals=console.width >= WIDE))
    interval = (
        "" if found.low is None or found.high is None else f", 95% interval {found.low:+.2f} to {found.high:+.2f}"
    )
    console.print(
        Text.assemble(
            f"mean acceptance length {found.change:+.2f}{interval}: ", (str(found.verdict), COLORS[found.verdict])
        )
    )
    for note in found.notes:
        show_note(note)


def _length(profile: AcceptanceProfile) -> str:
    return f"length {profile.mean_acceptance_length:.2f} over {profile.drafts:,} draft steps"


def _positions(found: AcceptanceDifference, with_intervals: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("position", "A", "B", "change", *(["interval"] if with_intervals else []), ""):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for at in found.positions:
        table.add_row(
            str(at.position),
            f"{at.rate_a:.1%}",
            f"{at.rate_b:.1%}",
            f"{at.change:+.1%}",
            *([f"{at.low:+.1%} to {at.high:+.1%}"] if with_intervals else []),
            Text(str(at.verdict), style=COLORS[at.verdict]),
        )
    return table
