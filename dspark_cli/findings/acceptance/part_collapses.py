"""Few drafts are accepted at position 0, and those go on as in health: two kinds of requests, one of them collapsed.

A drafter that reads its context does not go on better than it starts, on one kind of text. Where some requests
collapse and the rest are healthy, position 0 sinks with the share of the collapsed ones, and what follows is of the
others alone.
"""

from collections.abc import Iterator

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.findings.acceptance.evidence import (
    FEWEST_AT_A_POSITION,
    LOW_RATE,
    NOTHING_RESTORED,
    AcceptanceEvidence,
    at_every_position,
    prefix_hits,
    price,
    profile_to_judge,
)
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "part-of-requests-collapse"
RISE, RISE_FROM_A_FAIR_START = 1.2, 1.5
"""Rate given the previous position, over that of position 0, each at the near end of its interval. Easy and hard text
in one window rises a little too, from a start that is not low."""
FAIR_START = 0.65
LATEST = 2
"""Position up to which a rise is looked for: later ones rise in health too, for only easy text gets there."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile = profile_to_judge(ID, evidence, positions=2)
    if isinstance(profile, NotChecked):
        yield profile
        return
    if not part_collapses(evidence):
        return
    first, best = profile.positions[0], _best_later(profile)
    at_least = 1 - first.rate / best if best else 0.0
    restored = evidence.traffic.restored_rate
    hits = prefix_hits(evidence.traffic)
    yield Finding(
        ID,
        Severity.WARNING,
        f"{first.rate:.1%} of the drafts are accepted at position 0, and of these {best:.0%} go on "
        f"({at_every_position(profile)}); {hits}. On one kind of text a DFlash or DSpark drafter does not go on better "
        f"than it starts: so looks traffic of which {at_least:.0%} or more accepts nothing, and the rest is healthy",
        {
            "position_0_rate": round(first.rate, 4),
            "best_rate_given_previous": round(best, 4),
            "collapsed_share_at_least": round(at_least, 4),
            "prefix_hit_rate": evidence.traffic.prefix_hit_rate,
            "restored_rate": restored,
            **price(profile),
        },
        "find out whether restored prefixes tell them apart: dspark-tool probe --url URL; if they do, "
        f"{evidence.cure}; two kinds of text, one of which the drafter does not know, look alike, and so do drafters "
        "that copy (n-gram, suffix)",
        source="measured with cold and stale requests mixed on one server",
        confidence=Confidence.POSSIBLE,
    )


def part_collapses(evidence: AcceptanceEvidence) -> bool:
    profile, restored = evidence.profile, evidence.traffic.restored_rate
    if profile is None or len(profile.positions) < 2 or (restored is not None and restored < NOTHING_RESTORED):
        return False
    first = profile.positions[0]
    rise = RISE if first.rate_high < LOW_RATE else RISE_FROM_A_FAIR_START
    return first.rate_high < FAIR_START and any(
        reached.accepted >= FEWEST_AT_A_POSITION and (at.conditional_low or 0.0) > rise * first.rate_high
        for reached, at in zip(profile.positions, profile.positions[1 : LATEST + 1], strict=False)
    )


def _best_later(profile: AcceptanceProfile) -> float:
    return max(at.conditional_rate or 0.0 for at in profile.positions[1 : LATEST + 1])
