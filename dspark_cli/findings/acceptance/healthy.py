"""No fault is shown: each position accepts less than the one before it, and none falls off. Where it starts decides
whether that is health, or only not broken."""

from collections.abc import Iterator

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.findings.acceptance import cliff
from dspark_cli.findings.acceptance.evidence import (
    FEWEST_AT_A_POSITION,
    AcceptanceEvidence,
    falls_short,
    is_low,
    profile_to_judge,
)
from dspark_cli.findings.acceptance.part_collapses import part_collapses
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID, MODEST = "healthy-decay", "modest-start"
HEALTHY_START = 0.55
"""Rate of position 0. Published drafters have 0.6 to 0.9 there."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile = profile_to_judge(ID, evidence)
    if isinstance(profile, NotChecked):
        yield profile
        return
    expected = evidence.expected
    length = profile.mean_acceptance_length
    below = expected is not None and falls_short(profile, expected)
    if (
        is_low(profile)
        or part_collapses(evidence)
        or below
        or any(isinstance(answer, Finding) for answer in cliff.check(evidence))
        or _hardly_goes_on(profile)
    ):
        return
    band = f", and {expected}" if expected else ""
    start = profile.positions[0].rate
    healthy = start >= HEALTHY_START or expected is not None
    told = "" if healthy else "; but published drafters start at 60 to 90%"
    yield Finding(
        ID if healthy else MODEST,
        Severity.INFO,
        f"acceptance starts at {start:.1%} and shows no fault; mean acceptance length {length:.2f}{band}{told}",
        {"position_0_rate": round(start, 4), "mean_acceptance_length": round(length, 4)},
        "nothing to mend here"
        if expected
        else "hold it against the drafter's model card: dspark-tool acceptance --model-card FILE, or --expect LOW-HIGH",
    )


def _hardly_goes_on(profile: AcceptanceProfile) -> bool:
    """Whether position 1 surely accepts next to nothing of what gets there: no fault that is named, and no health."""
    if len(profile.positions) < 2 or profile.positions[0].accepted < FEWEST_AT_A_POSITION:
        return False
    return (profile.positions[1].conditional_high or 0.0) < cliff.HARDLY_GOES_ON
