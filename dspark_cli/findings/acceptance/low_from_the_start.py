"""Acceptance is low from the first position on, and restored prefixes are not the cause."""

from collections.abc import Iterator

from dspark_cli.findings.acceptance.evidence import (
    NOTHING_RESTORED,
    AcceptanceEvidence,
    at_every_position,
    is_low,
    only_position_0,
    prefix_hits,
    price,
    profile_to_judge,
)
from dspark_cli.findings.acceptance.part_collapses import part_collapses
from dspark_cli.findings.acceptance.prompt_length import falls_with_length
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "low-from-the-start"


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile = profile_to_judge(ID, evidence)
    if isinstance(profile, NotChecked):
        yield profile
        return
    restored = evidence.traffic.restored_rate
    cold = restored is not None and restored < NOTHING_RESTORED
    if not is_low(profile) or (only_position_0(profile) and not cold):
        return  # position-0-only says it
    if part_collapses(evidence) or falls_with_length(evidence.long_against_short):
        return  # these have another cause, and say it
    hits = prefix_hits(evidence.traffic)
    yield Finding(
        ID,
        Severity.ERROR if profile.positions[0].rate_high < 0.2 else Severity.WARNING,
        f"acceptance is low from position 0 on: {at_every_position(profile)}; mean acceptance length "
        f"{profile.mean_acceptance_length:.2f}, and {hits}. So looks a drafter that does not fit its target",
        {
            "position_0_rate": round(profile.positions[0].rate, 4),
            "mean_acceptance_length": round(profile.mean_acceptance_length, 4),
            "prefix_hit_rate": evidence.traffic.prefix_hit_rate,
            "restored_rate": restored,
            **price(profile),
        },
        "check that the drafter was trained for this very target (checkpoint, revision, chat template), its "
        "target_layer_ids, its rope parameters, and whether the target is quantised; text unlike its training data "
        "drafts badly too",
        source="measured with another drafter's weights and with rotated auxiliary layers",
        confidence=Confidence.LIKELY if cold else Confidence.POSSIBLE,
    )
