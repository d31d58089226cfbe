"""Only position 0 is ever accepted: what a drafter shows whose context was never written, or is another's."""

from collections.abc import Iterator

from dspark_cli.findings.acceptance.evidence import (
    NOTHING_RESTORED,
    AcceptanceEvidence,
    at_every_position,
    only_position_0,
    prefix_hits,
    price,
    profile_to_judge,
)
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "position-0-only"
SOURCE = "measured with the draft KV of restored blocks overwritten by noise; users report it with prefix caching"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile = profile_to_judge(ID, evidence)
    if isinstance(profile, NotChecked):
        yield profile
        return
    restored = evidence.traffic.restored_rate
    if not only_position_0(profile) or (restored is not None and restored < NOTHING_RESTORED):
        return  # with nothing restored, a drafter that does not fit is the reading: low_from_the_start
    hits = prefix_hits(evidence.traffic)
    yield Finding(
        ID,
        Severity.ERROR,
        f"drafts are accepted at position 0 or not at all: {at_every_position(profile)}; mean acceptance length "
        f"{profile.mean_acceptance_length:.2f}, so drafting yields next to nothing; {hits}. So looks a drafter whose "
        "context KV was never written for the restored tokens",
        {
            "position_0_rate": round(profile.positions[0].rate, 4),
            "accepted_beyond_position_0": profile.accepted - profile.positions[0].accepted,
            "mean_acceptance_length": round(profile.mean_acceptance_length, 4),
            "prefix_hit_rate": evidence.traffic.prefix_hit_rate,
            "restored_rate": restored,
            **price(profile),
        },
        "find out by experiment whether restored prefixes are the cause: dspark-tool probe --url URL; if they are, "
        f"{evidence.cure}; a drafter that does not fit its target looks alike, and then cold prompts are as bad",
        source=SOURCE,
        confidence=Confidence.POSSIBLE,  # the profile alone cannot tell it from a drafter that does not fit
    )
