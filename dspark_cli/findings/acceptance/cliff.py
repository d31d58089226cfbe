"""A healthy start, and then from one position on hardly anything: a boundary, not a collapse."""

from collections.abc import Iterator

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.findings.acceptance.evidence import (
    FEWEST_AT_A_POSITION,
    AcceptanceEvidence,
    at_every_position,
    price,
    profile_to_judge,
)
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "cliff"
HEALTHY_START = 0.4
"""Lower bound of position 0's rate."""
HARDLY_GOES_ON = 0.2
"""Rate given the previous position. Healthy drafters go on with 0.3 to 0.7 from position 0."""
FALL_AT_1, FALL_LATER = 0.5, 0.25
"""What is accepted given the previous position must fall below this part of what it was before. Later positions of
small drafters decay by half from one to the next, and that is no cliff."""
SURELY_SOME = 5
"""So many expected, and none seen, is no chance (0.7%)."""
DROP = 0.3
"""Part of the rate of the position before, below which it is a cliff whatever is left."""
EMPTY_POSITIONS = 3
"""So many positions in a row with nothing at all, after one that accepted something, are a boundary too."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    profile = profile_to_judge(ID, evidence, positions=2)
    if isinstance(profile, NotChecked):
        yield profile
        return
    if profile.drafted_per_step < len(profile.positions) - 0.5:
        drafted = f"{profile.drafted_per_step:.1f} of {len(profile.positions)} tokens a step"
        yield NotChecked(ID, f"the depth changes from step to step ({drafted}), and late positions are drafted seldom")
        return
    at = _fall(profile) or _end(profile)
    if at is None:
        return
    after_the_first = at == 1
    yield Finding(
        ID,
        Severity.WARNING,
        (
            f"position 0 is healthy ({profile.positions[0].rate:.1%}), and hardly a draft goes on: "
            f"{at_every_position(profile)}"
            if after_the_first
            else f"drafts are accepted up to position {at - 1}, and hardly from {at} on: {at_every_position(profile)}"
        ),
        {
            "first_position": at,
            "rate_before": round(profile.positions[at - 1].rate, 4),
            "rate": round(profile.positions[at].rate, 4),
            "given_previous_before": profile.positions[at - 1].conditional_rate,
            "given_previous": profile.positions[at].conditional_rate,
            **price(profile),
        },
        (
            "the later positions do not know the earlier ones: check the Markov head of the checkpoint (DSpark), the "
            "mask token, and whether the draft attention runs causal where it should not"
            if after_the_first
            else f"draft {at} tokens: --tokens {at}; the drafter's block_size says how many it was trained for"
        ),
        source="measured with more tokens than the trained block, and with a Markov head turned round",
        confidence=Confidence.LIKELY,
    )


def _fall(profile: AcceptanceProfile) -> int | None:
    """The first position that surely goes on much more seldom than the one before it, and hardly ever."""
    if profile.positions[0].rate_low < HEALTHY_START:
        return None
    for before, here in zip(profile.positions, profile.positions[1:], strict=False):
        reached = before.accepted
        if reached < FEWEST_AT_A_POSITION or here.conditional_high is None or before.conditional_low is None:
            return None
        fall = FALL_AT_1 if here.position == 1 else FALL_LATER
        drops = here.conditional_high < min(HARDLY_GOES_ON, fall * before.conditional_low)
        if drops or here.conditional_high < DROP * before.conditional_low:
            return here.position
    return None


def _end(profile: AcceptanceProfile) -> int | None:
    """The position from which nothing at all is accepted, where several are drafted beyond it.

    Decay ends somewhere too: it is an end only where the position would have accepted something, had the rate given the
    previous position gone on falling as it did.
    """
    accepted = [at.position for at in profile.positions if at.accepted]
    last = accepted[-1] if accepted else -1
    if last < 1 or len(profile.positions) - 1 - last < EMPTY_POSITIONS:
        return None
    reached, given = profile.positions[last].accepted, profile.positions[last].conditional_rate or 0.0
    given_before = profile.positions[last - 1].conditional_rate or given
    expected = reached * min(given, given * given / given_before)
    return last + 1 if expected >= SURELY_SOME else None
