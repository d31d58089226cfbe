"""A plan in words and figures, to show or to print."""

from dataclasses import dataclass
from pathlib import Path

from dspark_cli.facts.tuning import TuningQuestion
from dspark_cli.serving.command import ServeCommand
from dspark_cli.tuning.plan import TuningPlan, outlook


@dataclass(frozen=True)
class DescribedPlan:
    """`requests` is the number of them by concurrency; `command` starts the server with the most tokens."""

    question: TuningQuestion
    candidates: tuple[str, ...]
    requests: dict[int, int]
    least_servers: int
    most_servers: int
    results: str
    command: str


def described(question: TuningQuestion, plan: TuningPlan, results: Path, command: ServeCommand) -> DescribedPlan:
    """As if nothing was measured yet."""
    left = outlook(plan, {}, frozenset())
    return DescribedPlan(
        question=question,
        candidates=tuple(candidate.name for candidate in plan.candidates),
        requests={each: question.load.requests(each) for each in plan.concurrencies},
        least_servers=left.least,
        most_servers=left.most,
        results=str(results),
        command=command.shown(),
    )
