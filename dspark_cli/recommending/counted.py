"""Draft acceptance that was counted on a running server, as far as it says how many tokens pay."""

from dataclasses import dataclass
from pathlib import Path

from dspark_cli.errors import CannotSay
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.findings.acceptance.evidence import FEWEST_DRAFTS, WORTH, is_low
from dspark_cli.findings.acceptance.never_pay import worth_keeping
from dspark_cli.profiling.judge import report_on
from dspark_cli.sources.acceptance_file import read_acceptance_file


@dataclass(frozen=True)
class CountedAcceptance:
    """`keep` is how many positions pay of `drafted`; `length` is the mean acceptance length over `steps`."""

    source: str
    steps: int
    drafted: int
    keep: int
    length: float
    broken: bool
    """It looks like a fault, so that no number of tokens follows from it."""

    @property
    def says_how_many(self) -> bool:
        """Whether some positions pay and later ones do not."""
        return not self.broken and 0 < self.keep < self.drafted


def read_counted(file: Path) -> CountedAcceptance:
    """Of a saved report of `dspark-tool acceptance`, a /metrics page or a benchmark's result.

    Raises:
        BadInput: it is none of these.
        CannotSay: it has too few draft steps, or no positions.
    """
    report = report_on(read_acceptance_file(file))
    profile = report.profile or report.since_start
    if profile is None or profile.drafts < FEWEST_DRAFTS or not profile.positions:
        steps = 0 if profile is None else profile.drafts
        raise CannotSay(
            f"{file} has {steps:,} draft steps with positions; it takes {FEWEST_DRAFTS}",
            "count for longer: dspark-tool acceptance --url URL --interval SECONDS --json > FILE",
        )
    return _counted(str(file), profile)


def _counted(source: str, profile: AcceptanceProfile) -> CountedAcceptance:
    return CountedAcceptance(
        source,
        profile.drafts,
        len(profile.positions),
        worth_keeping(profile, WORTH),
        profile.mean_acceptance_length,
        is_low(profile),
    )
