"""The mean acceptance length against what the drafter's model card, or the user, leads one to expect."""

from collections.abc import Iterator

from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence, falls_short, longest, price, profile_to_judge
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "below-expectation"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    expected = evidence.expected
    if expected is None:
        yield NotChecked(ID, evidence.no_expectation)
        return
    profile = profile_to_judge(ID, evidence, positions=0)
    if isinstance(profile, NotChecked):
        yield profile
        return
    if not falls_short(profile, expected):
        return
    steps, then = 1000 / profile.mean_acceptance_length, 1000 / expected.low
    yield Finding(
        ID,
        Severity.WARNING,
        f"the mean acceptance length is {profile.mean_acceptance_length:.2f} (at most {longest(profile):.2f}), and "
        f"{expected}: {steps:.0f} decode steps for 1,000 tokens instead of {then:.0f} or fewer",
        {
            "mean_acceptance_length": round(profile.mean_acceptance_length, 4),
            "expected_low": expected.low,
            "expected_high": expected.high,
            "decode_steps_per_1000_tokens_expected": round(then, 1),
            **price(profile),
        },
        "compare like with like: the same kind of text, temperature and number of tokens as on the card; then look for "
        "a cause with dspark-tool probe --url URL",
    )
