"""Whether a server runs as asked: one line where it does, one for each difference where it does not."""

from rich.text import Text

from dspark_cli.facts.start_verification import Outcome, Verification, Verified
from dspark_cli.report.acceptance_words import short
from dspark_cli.report.console import message_console, printable

LONGEST_VALUE = 240


def show_verification(found: Verification) -> None:
    console = message_console()
    for line in _lines(found):
        console.print(line, soft_wrap=True)


def _lines(found: Verification) -> list[Text]:
    lines = [_difference(each) for each in found.differing]
    if same := [each for each in found.settings if each.outcome is Outcome.SAME]:
        lines.append(Text(printable(f"as asked: {', '.join(_confirmed(each) for each in same)}")))
    if open_ones := found.not_confirmed:
        names = ", ".join(each.setting for each in open_ones)
        reason = found.unasked or open_ones[0].next_step
        lines.append(Text.assemble(("note: ", "bold yellow"), printable(f"not confirmed: {names} ({reason})")))
    return lines


def _confirmed(each: Verified) -> str:
    return f"{each.setting} {short(each.got or '', LONGEST_VALUE)}"


def _difference(each: Verified) -> Text:
    what = f"{each.setting}: asked for {each.asked}, the server has {each.got} (says {each.source})"
    return Text.assemble(
        ("warning: ", "bold yellow"),
        printable(short(what, 2 * LONGEST_VALUE)),
        "\n",
        ("next: ", "bold"),
        printable(each.next_step or ""),
    )
