"""What the checks of draft acceptance look at."""

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_context import ServerContext
from dspark_cli.facts.probe import Comparison
from dspark_cli.facts.traffic import UNKNOWN_TRAFFIC, Traffic
from dspark_cli.findings.finding import NotChecked

FEWEST_DRAFTS = 200
"""Below it no verdict: even if they were independent, a rate would be known to within seven points only."""
FEWEST_AT_A_POSITION = 30
"""Drafts that reached a position, for a word on how many it accepts."""
NOTHING_RESTORED = 0.01
"""Hit rate below which restored prefixes cannot explain what all drafts show."""
LOW_RATE = 0.45
"""Of position 0. Published drafters have 0.6 to 0.9 there, the weakest real pair at hand 0.41 to 0.45 (which is why
the length must be low as well)."""
LOW_LENGTH = 1.6
WORTH = 0.05
"""The rate under which a position does not pay, where the user names no other."""
HIDING = "dspark-tool serve --draft-context validity hides what is stale from the drafter"
LASTING_CURE = "the lasting cure is a connector that carries the draft layers"
NO_EXPECTATION = "no expectation was given: --expect 3.1-3.8, or --model-card FILE"


@dataclass(frozen=True)
class ExpectedAcceptance:
    """The band of the mean acceptance length that the drafter's model card promises, or the user expects."""

    low: float
    high: float
    source: str

    def __str__(self) -> str:
        band = f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        return f"{self.source} has {band}"


@dataclass(frozen=True)
class AcceptanceEvidence:
    """`profile` is None where nothing was drafted. The comparisons are a probe's; None where there was none."""

    profile: AcceptanceProfile | None
    speculates: bool = True
    traffic: Traffic = UNKNOWN_TRAFFIC
    expected: ExpectedAcceptance | None = None
    no_expectation: str = NO_EXPECTATION
    """Why `expected` is None, where it is."""
    worth: float = WORTH
    restored: Sequence[Comparison] | None = None
    """Restored prefixes against the same prompts cold, the longest first."""
    long_against_short: Comparison | None = None
    """Whole prompts against their ends, both cold."""
    contexts: Sequence[ServerContext] = ()
    """Of the servers that tell theirs."""

    @property
    def enough(self) -> bool:
        return self.profile is not None and self.profile.drafts >= FEWEST_DRAFTS

    @property
    def cure(self) -> str:
        """What helps where restored prefixes turn out to be the cause."""
        if any(server.context.active for server in self.contexts):
            return "the draft context is checked already, so then report it"
        return f"then {HIDING}, and {LASTING_CURE}"


def profile_to_judge(check: str, evidence: AcceptanceEvidence, positions: int = 1) -> AcceptanceProfile | NotChecked:
    """The profile, of `positions` or more; or why `check` cannot be made with what there is."""
    profile = evidence.profile
    if not evidence.speculates:
        return NotChecked(check, "nothing is drafted: there is no drafter")
    if profile is None or not evidence.enough:
        drafts = profile.drafts if profile else 0
        return NotChecked(check, f"{drafts:,} draft steps; it takes {FEWEST_DRAFTS}")
    if len(profile.positions) < positions:
        told = "the source tells no acceptance by position"
        return NotChecked(check, told if not profile.positions else f"it takes {positions} positions")
    return profile


def is_low(profile: AcceptanceProfile) -> bool:
    """Low from the first position on, with its whole interval."""
    return bool(profile.positions) and profile.positions[0].rate_high < LOW_RATE and longest(profile) < LOW_LENGTH


def only_position_0(profile: AcceptanceProfile) -> bool:
    """Low from the first position on, and what is accepted is accepted there: nothing, or hardly anything, goes
    on."""
    if not is_low(profile) or len(profile.positions) < 2:
        return False
    beyond = profile.accepted - profile.positions[0].accepted
    return beyond <= 0.25 * profile.accepted


def falls_short(profile: AcceptanceProfile, expected: ExpectedAcceptance) -> bool:
    """Whether the length is surely below what is expected."""
    return longest(profile) < expected.low


def longest(profile: AcceptanceProfile) -> float:
    """The upper end of the mean acceptance length's interval, where there is one."""
    return profile.length_high if profile.length_high is not None else profile.mean_acceptance_length


def prefix_hits(traffic: Traffic) -> str:
    """What was restored, in words."""
    restored = traffic.restored_rate
    if restored is None:
        return "prefix hits are not known"
    how = "restored, most of them by a KV connector" if traffic.external_hits else "prefix hits"
    if traffic.external_hits and traffic.external_hits <= (traffic.prefix_hits or 0):
        how = "restored, some of them by a KV connector"
    return f"{restored:.0%} of the prompt tokens were {how}"


def at_every_position(profile: AcceptanceProfile) -> str:
    return " / ".join(f"{at.rate:.1%}" for at in profile.positions)


def price(profile: AcceptanceProfile) -> dict[str, int | float | str | bool | None]:
    """What the drafts cost and yield, for a finding's evidence."""
    return {
        "drafted_tokens": profile.draft_tokens,
        "used_tokens": profile.accepted,
        "decode_steps_per_1000_tokens": round(1000 / profile.mean_acceptance_length, 1),
    }
