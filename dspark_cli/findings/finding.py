"""A finding: what is wrong or worth knowing, with the numbers that show it and what to do about it."""

from dataclasses import dataclass, field
from enum import IntEnum


class Severity(IntEnum):
    INFO = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True)
class Finding:
    id: str
    severity: Severity
    what: str
    evidence: dict[str, int | float | str | bool | None] = field(default_factory=dict)
    advice: str = ""
    fixed_since: str | None = None
    source: str = ""


@dataclass(frozen=True)
class NotChecked:
    id: str
    why: str
