"""Two profiles, position by position: better, worse, or no difference shown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.intervals import CONFIDENCE, Z, wilson_interval
from dspark_cli.facts.recording import Recording
from dspark_cli.findings.acceptance.evidence import FEWEST_DRAFTS
from dspark_cli.profiling.acceptance_report import AcceptanceReport

FEW_REQUESTS = 20


class Change(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "no difference shown"
    TOO_FEW = "too little data"


@dataclass(frozen=True)
class PositionDifference:
    """`change` is B's rate less A's, with an interval that holds for all positions at once."""

    position: int
    rate_a: float
    rate_b: float
    change: float
    low: float
    high: float
    verdict: Change


@dataclass(frozen=True)
class AcceptanceDifference:
    """B against A. `change` is of the mean acceptance length, with its 95% interval.
    Draft steps are taken as independent, so few requests make the intervals too narrow."""

    a: str
    b: str
    profile_a: AcceptanceProfile
    profile_b: AcceptanceProfile
    positions: tuple[PositionDifference, ...]
    change: float
    low: float
    high: float
    verdict: Change
    notes: tuple[str, ...]


def difference_of(a: str, b: str, report_a: AcceptanceReport, report_b: AcceptanceReport) -> AcceptanceDifference:
    """`report_b` against `report_a`, called `b` and `a`.

    Raises:
        CannotSay: one of them has no draft step.
        BadInput: both are since the start of one server, so that one is a part of the other.
    """
    if _one_holds_the_other(report_a.recording, report_b.recording):
        raise BadInput(
            "both are since the start of the same server, so one holds the other",
            "compare windows: dspark-tool acceptance --url URL --interval SECONDS --json > FILE",
        )
    profile_a, profile_b = _profile(a, report_a), _profile(b, report_b)
    count = min(len(profile_a.positions), len(profile_b.positions))
    change = profile_b.mean_acceptance_length - profile_a.mean_acceptance_length
    reach = _reach(profile_a, profile_b)
    low, high = change - reach, change + reach
    requests = [report.recording.traffic.finished_requests for report in (report_a, report_b)]
    few_requests = min((number for number in requests if number is not None), default=FEW_REQUESTS) < FEW_REQUESTS
    few = few_requests or min(profile_a.drafts, profile_b.drafts) < FEWEST_DRAFTS
    return AcceptanceDifference(
        a=a,
        b=b,
        profile_a=profile_a,
        profile_b=profile_b,
        positions=tuple(_at(at, count, profile_a, profile_b, few) for at in range(count)),
        change=change,
        low=low,
        high=high,
        verdict=_verdict(low, high, few),
        notes=tuple(_notes(profile_a, profile_b, requests)),
    )


def _one_holds_the_other(a: Recording, b: Recording) -> bool:
    """Whether they are two looks at counters that were created at the same moment."""
    if a.seconds is not None or b.seconds is not None:
        return False
    born = [{(part.where, part.counted.born) for part in each.parts if part.counted.born} for each in (a, b)]
    return bool(born[0] & born[1])


def _profile(name: str, report: AcceptanceReport) -> AcceptanceProfile:
    if report.profile is None:
        raise CannotSay(f"{name} holds no draft step", "send the server requests, then measure again")
    return report.profile


def _notes(a: AcceptanceProfile, b: AcceptanceProfile, requests: Sequence[int | None]) -> list[str]:
    notes = []
    if len(a.positions) != len(b.positions):
        notes.append(
            f"A drafts {len(a.positions)} tokens and B {len(b.positions)}: the longer one's last positions have no like"
        )
    known = [number for number in requests if number is not None]
    if known and min(known) < FEW_REQUESTS:
        notes.append(
            f"one side holds {min(known)} requests only: drafts of one request are alike, so the truth is wider than "
            "these intervals"
        )
    return notes


def _at(at: int, count: int, a: AcceptanceProfile, b: AcceptanceProfile, few: bool) -> PositionDifference:
    """Newcombe's interval for the difference of two shares, from their Wilson intervals; Bonferroni over positions."""
    confidence = 1 - (1 - CONFIDENCE) / count
    rate_a, rate_b = a.positions[at].rate, b.positions[at].rate
    low_a, high_a = wilson_interval(a.positions[at].accepted, a.drafts, confidence)
    low_b, high_b = wilson_interval(b.positions[at].accepted, b.drafts, confidence)
    change = rate_b - rate_a
    low = change - math.hypot(rate_b - low_b, high_a - rate_a)
    high = change + math.hypot(high_b - rate_b, rate_a - low_a)
    return PositionDifference(at, rate_a, rate_b, change, low, high, _verdict(low, high, few))


def _reach(a: AcceptanceProfile, b: AcceptanceProfile) -> float:
    """Half the interval of the lengths' difference."""
    return math.hypot(_half(a), _half(b))


def _half(profile: AcceptanceProfile) -> float:
    """Half the interval of a length. Where positions are not known, that of steps which accept all or nothing: the
    widest that there can be."""
    if profile.length_high is not None:
        return profile.length_high - profile.mean_acceptance_length
    mean = profile.mean_acceptance_length - 1
    return Z * math.sqrt(max(0.0, mean * (profile.drafted_per_step - mean)) / profile.drafts)


def _verdict(low: float, high: float, few: bool) -> Change:
    if few:
        return Change.TOO_FEW
    if low > 0:
        return Change.BETTER
    return Change.WORSE if high < 0 else Change.NOT_SHOWN
