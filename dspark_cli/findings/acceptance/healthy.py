"""A healthy decay: each position accepts less than the one before it, and none falls off."""

from collections.abc import Iterator

from dspark_cli.findings.acceptance import cliff
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence, is_low, too_few
from dspark_cli.findings.acceptance.part_collapses import part_collapses
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "healthy-decay"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile, expected = evidence.profile, evidence.expected
    if profile is None or not evidence.enough:
        yield too_few(ID, evidence)
        return
    if not profile.positions:
        yield NotChecked(ID, "the source tells no acceptance by position")
        return
    length = profile.mean_acceptance_length
    below = expected is not None and (profile.length_high or length) < expected.low
    if (
        is_low(profile)
        or part_collapses(evidence)
        or below
        or any(isinstance(answer, Finding) for answer in cliff.check(evidence))
    ):
        return
    band = f", and {expected.source} has {expected.low:g} to {expected.high:g}" if expected else ""
    yield Finding(
        ID,
        Severity.INFO,
        f"acceptance starts at {profile.positions[0].rate:.1%} and decays without a break; mean acceptance length "
        f"{length:.2f}{band}",
        {"position_0_rate": round(profile.positions[0].rate, 4), "mean_acceptance_length": round(length, 4)},
        "nothing to mend here" if expected else "to hold it against the drafter's model card: --expect LOW-HIGH",
    )
