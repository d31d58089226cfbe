"""A finding: what is wrong or worth knowing, with the numbers that show it and what to do about it."""

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """Ordered: INFO < WARNING < ERROR."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)

    def __lt__(self, other: str) -> bool:
        return self.rank < Severity(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= Severity(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > Severity(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= Severity(other).rank


class Confidence(StrEnum):
    """How sure the cause is, not the figures."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True)
class Finding:
    """One thing found. `what` is a sentence with the numbers, `evidence` has them by name."""

    id: str
    severity: Severity
    what: str
    evidence: dict[str, int | float | str | bool | None] = field(default_factory=dict)
    advice: str = ""
    """What to do now, with the options to type."""
    fixed_since: str | None = None
    """The vLLM release in which the cause is gone."""
    source: str = ""
    """Where the rule comes from."""
    confidence: Confidence | None = None
    """None where the check only states figures."""


@dataclass(frozen=True)
class NotChecked:
    """A check that could not be made, and for want of what."""

    id: str
    why: str
