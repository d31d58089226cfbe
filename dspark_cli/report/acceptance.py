"""The acceptance profile as a table with a bar a position."""

from rich.bar import Bar
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.acceptance import AcceptanceProfile, AcceptanceReport, PositionAcceptance
from dspark_cli.report.console import printable, result_console, show_note

WIDTH_WITH_BAR = 78
WIDE_INTERVAL = 0.1
"""An interval of position 0 wider than this (10 points) deserves a note: more traffic would sharpen it."""


def show_acceptance(report: AcceptanceReport) -> None:
    profile, console = report.profile, result_console()
    span = "since server start" if report.seconds is None else f"over {report.seconds:.1f} s"
    console.print(Text(printable(f"Draft acceptance of {', '.join(report.engines)}, {span}")))
    console.print(_positions(profile, with_bar=console.width >= WIDTH_WITH_BAR))
    console.print(_totals(profile))
    if report.restarted:
        show_note("the server was restarted in between; the figures begin at its restart")
    for note in report.notes:
        show_note(note)
    if profile.positions and profile.positions[0].rate_high - profile.positions[0].rate_low > WIDE_INTERVAL:
        show_note(f"{profile.drafts:,} draft steps are few: see how wide the intervals are")


def _positions(profile: AcceptanceProfile, with_bar: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("position", "accepted", "rate", "95% interval", "given previous"):
        table.add_column(heading, justify="right", no_wrap=True)
    if with_bar:
        table.add_column("", width=20)
    for at in profile.positions:
        table.add_row(
            str(at.position),
            f"{at.accepted:,}",
            f"{at.rate:.1%}",
            f"{at.rate_low:.1%} - {at.rate_high:.1%}",
            "-" if at.conditional_rate is None else f"{at.conditional_rate:.1%}",
            *([_bar(at)] if with_bar else []),
        )
    return table


def _bar(at: PositionAcceptance) -> Bar:
    return Bar(size=1.0, begin=0, end=min(at.rate, 1.0), color="green")


def _totals(profile: AcceptanceProfile) -> Text:
    rate = "-" if profile.draft_acceptance_rate is None else f"{profile.draft_acceptance_rate:.1%}"
    return Text(
        f"mean acceptance length {profile.mean_acceptance_length:.2f} "
        f"({profile.accepted:,} accepted in {profile.drafts:,} draft steps)\n"
        f"draft acceptance rate {rate} of {profile.draft_tokens:,} draft tokens"
    )
