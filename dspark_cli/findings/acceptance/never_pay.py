"""Positions that are drafted and verified at every step, and hardly ever accepted."""

from collections.abc import Iterator

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence, is_low, profile_to_judge
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "tokens-that-never-pay"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile = profile_to_judge(ID, evidence)
    if isinstance(profile, NotChecked):
        yield profile
        return
    keep = worth_keeping(profile, evidence.worth)
    if keep == len(profile.positions) or keep == 0 or is_low(profile):
        return  # what is broken is to be mended, not drafted less
    lost = sum(at.accepted for at in profile.positions[keep:])
    shorter = 1 + (profile.accepted - lost) / profile.drafts
    share = 1 - keep / len(profile.positions)
    yield Finding(
        ID,
        Severity.INFO,
        f"{_dropped(keep, len(profile.positions))} accepted in under {evidence.worth:.0%} of the draft steps; with "
        f"{_tokens(keep)} the mean acceptance length would be {shorter:.2f} instead of "
        f"{profile.mean_acceptance_length:.2f}, for {share:.0%} fewer tokens to draft and verify",
        {
            "keep": keep,
            "drafted": len(profile.positions),
            "threshold": evidence.worth,
            "mean_acceptance_length": round(profile.mean_acceptance_length, 4),
            "mean_acceptance_length_then": round(shorter, 4),
        },
        f"draft fewer: dspark-tool serve ... --tokens {keep}; it pays most at high concurrency, where verifying costs "
        "time",
    )


def worth_keeping(profile: AcceptanceProfile, worth: float) -> int:
    """How many positions have a rate that is not surely under `worth`: all up to the last such."""
    paying = [at.position + 1 for at in profile.positions if at.rate_high >= worth]
    return max(paying, default=0)


def _dropped(keep: int, drafted: int) -> str:
    last = drafted - 1
    return f"position {last} is" if keep == last else f"positions {keep} to {last} are each"


def _tokens(count: int) -> str:
    return f"{count} token{'s' * (count != 1)}"
