"""What a tune is going to do, before it starts."""

from pathlib import Path

from rich.text import Text

from dspark_cli.facts.tuning import TuningQuestion
from dspark_cli.report.console import message_console, printable, result_console
from dspark_cli.report.json_document import print_json
from dspark_cli.report.tuning_words import bound_words
from dspark_cli.serving.command import ServeCommand
from dspark_cli.tuning.described_plan import DescribedPlan, described
from dspark_cli.tuning.plan import TuningPlan


def show_plan(
    question: TuningQuestion, plan: TuningPlan, results: Path, command: ServeCommand, minutes: float, as_result: bool
) -> None:
    """On stdout where the plan is the result, else a message before the work."""
    console = result_console() if as_result else message_console()
    told = described(question, plan, results, command)
    lines = [
        f"{question.vllm} on {question.device}",
        f"candidates{_setting(question)}: {'; '.join(told.candidates)}",
        f"loads: {'; '.join(_load(each, told) for each in plan.concurrencies)}{bound_words(plan.bound)}",
        f"servers to start: {_servers(told)}; nothing new after {minutes:g} min",
        f"results: {results}{_kept(results)}",
        f"largest: {told.command}",
    ]
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)


def print_plan_json(question: TuningQuestion, plan: TuningPlan, results: Path, command: ServeCommand) -> None:
    print_json("tune", described(question, plan, results, command))


def _setting(question: TuningQuestion) -> str:
    """What the values behind the numbers of tokens are of."""
    return f" (tokens, {question.also})" if question.also else ""


def _kept(results: Path) -> str:
    return " (is there already: what it has of these is not measured again)" if results.exists() else ""


def _load(concurrency: int, told: DescribedPlan) -> str:
    return f"{told.requests[concurrency]} requests, {concurrency} at a time"


def _servers(told: DescribedPlan) -> str:
    span = (
        str(told.least_servers)
        if told.least_servers == told.most_servers
        else (f"{told.least_servers} to {told.most_servers}, as the predictions turn out")
    )
    return f"{span}; the first tells how long one takes"
