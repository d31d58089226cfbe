"""The recommended settings, each with its reason; conflicts first in line of sight; then the command."""

import json

from rich.table import Table
from rich.text import Text

from dspark_cli.recommending.recommend import command_words, has_secrets
from dspark_cli.recommending.recommendation import Choice, Recommendation
from dspark_cli.recommending.rules.draft_tokens import DOES_NOT_PAY
from dspark_cli.report.console import printable, result_console
from dspark_cli.report.findings import indented, show_findings
from dspark_cli.serving.shell_words import shell_line


def show_recommendation(recommendation: Recommendation) -> None:
    console = result_console()
    console.print(Text(printable(f"{recommendation.target} with {recommendation.drafter}")), soft_wrap=True)
    console.print(
        Text(printable(f"{recommendation.vllm}, runner {recommendation.model_runner}, {recommendation.device}"))
    )
    for title, choices in (
        ("given", [choice for choice in recommendation.choices if choice.value is not None]),
        ("left to vLLM", [choice for choice in recommendation.choices if choice.value is None]),
    ):
        if choices:
            console.print(Text(f"\n{title}", "bold"))
            console.print(_table(choices))
    findings = [*recommendation.refused, *recommendation.traps]
    if findings or recommendation.not_checked:
        show_findings(console, findings, recommendation.not_checked)
    if recommendation.refused:
        console.print(Text("\ndspark-tool serve refuses this, until it is mended or allowed (--allow-conflicts)"))
        return
    advised_against = any(finding.id == DOES_NOT_PAY for finding in findings)
    console.print(Text("\nserve it with the drafter all the same" if advised_against else "\nserve it", "bold"))
    if has_secrets(recommendation):
        console.print(Text("(with your secrets, which are left out here)"))
    console.print(Text(printable(shell_line(command_words(recommendation)))), soft_wrap=True)


def _table(choices: list[Choice]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(max_width=28, overflow="fold")
    table.add_column(overflow="fold")
    for choice in choices:
        table.add_row(Text(printable(_named(choice)), "bold"), _why(choice))
    return table


def _named(choice: Choice) -> str:
    if choice.value is None:
        return choice.setting
    value = choice.value if isinstance(choice.value, str) else json.dumps(choice.value)
    return f"{choice.setting} {value}"


def _why(choice: Choice) -> Text:
    return Text.assemble(printable(choice.reason), "\n", (printable(f"[{choice.confidence}] {choice.source}"), "dim"))


def show_traps(recommendation: Recommendation) -> None:
    from dspark_cli.report.console import message_console

    console = message_console()
    for finding in recommendation.traps:
        console.print(Text(printable(f"note: {finding.id}: {finding.what}")), soft_wrap=False)
        console.print(indented(Text.assemble(("next: ", "bold"), printable(finding.advice))))
