"""Every check of draft acceptance."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dspark_cli.findings.acceptance import (
    against_the_card,
    cliff,
    collapse,
    context_hidden,
    healthy,
    low_from_the_start,
    never_pay,
    no_speculation,
    part_collapses,
    prompt_length,
    ranks_differ,
    restored_buckets,
    restored_prefixes,
    too_little_data,
)
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence
from dspark_cli.findings.finding import Finding, NotChecked

Check = Callable[[AcceptanceEvidence], Iterator[Finding | NotChecked]]

CHECKS: tuple[Check, ...] = (
    no_speculation.check,
    too_little_data.check,
    restored_prefixes.check,
    restored_buckets.check,
    ranks_differ.check,
    prompt_length.check,
    collapse.check,
    part_collapses.check,
    low_from_the_start.check,
    cliff.check,
    against_the_card.check,
    never_pay.check,
    context_hidden.check,
    healthy.check,
)


CHECKS_OF_A_PROBE: tuple[Check, ...] = (
    no_speculation.check,
    restored_prefixes.check,
    prompt_length.check,
    low_from_the_start.check,
    cliff.check,
    never_pay.check,
    healthy.check,
)
"""For cold prompts beside restored ones: the verdict says whether they were enough, and nothing was restored that the
profile alone could be blamed on."""


@dataclass(frozen=True)
class CheckedAcceptance:
    """Findings, the most severe first, then in the order of the checks; and what could not be checked."""

    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]


def check_acceptance(evidence: AcceptanceEvidence, checks: Iterable[Check] = CHECKS) -> CheckedAcceptance:
    """Every one of `checks`; one whose data is missing says so among `not_checked`."""
    answers = [answer for check in checks for answer in check(evidence)]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return CheckedAcceptance(
        worst_first(findings),
        tuple(answer for answer in answers if isinstance(answer, NotChecked)),
    )


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The most severe first; findings of one severity stay in order."""
    return tuple(sorted(findings, key=lambda finding: -finding.severity.rank))
