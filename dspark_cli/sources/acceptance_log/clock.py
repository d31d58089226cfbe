"""When a line was written, and the time that passes from line to line."""

from dataclasses import dataclass
from datetime import UTC, datetime

OUT_OF_ORDER_S = 60.0
"""Processes write into one log in their own time; a line this little older than the last is no clock set back."""


@dataclass(frozen=True)
class Moment:
    """When a line was written: `at` in seconds since 1970 where it says so, `wall` by a clock of unknown zone.

    `has_year` where the clock tells it.
    """

    at: float | None = None
    wall: datetime | None = None
    has_year: bool = False

    def seconds_after(self, earlier: "Moment") -> float | None:
        """Below zero where this is the earlier one; within half a year where a year is not told."""
        if self.at is not None and earlier.at is not None:
            return self.at - earlier.at
        if self.wall is None or earlier.wall is None:
            return None
        if self.has_year and earlier.has_year:
            return (self.wall - earlier.wall).total_seconds()
        return _seconds_within_a_year(earlier.wall, self.wall)


class Clock:
    """Adds up the time from line to line; never goes back."""

    def __init__(self) -> None:
        self.total = 0.0
        self.set_back = 0
        self._last: Moment | None = None

    def seconds_until(self, moment: Moment) -> float | None:
        """Seconds since the line before, None where they are not known."""
        if moment.at is None and moment.wall is None:
            return None
        step = moment.seconds_after(self._last) if self._last is not None else None
        if step is not None and -OUT_OF_ORDER_S <= step < 0:
            return 0.0
        self._last = moment
        if step is not None and step < 0:
            self.set_back += 1
            return None
        self.total += step or 0
        return step


def moment_of(stamp: str | None, wall: str) -> Moment:
    """`stamp` is a container runtime's time, with its zone; `wall` is vLLM's: "11-29 15:04:22", with a year or without.

    What is no time counts as not told.
    """
    has_year = wall[4:5] == "-"
    try:
        read = datetime.strptime(wall if has_year else f"2024-{wall}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return Moment(_since_1970(stamp))
    return Moment(_since_1970(stamp), read, has_year)


def _since_1970(stamp: str | None) -> float | None:
    try:
        return (datetime.fromisoformat(stamp) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() if stamp else None
    except (ValueError, OverflowError):
        return None


def _seconds_within_a_year(earlier: datetime, later: datetime) -> float:
    """From one to the other, whose years are not told: the shorter way round the calendar."""
    leaps = any((wall.month, wall.day) == (2, 29) for wall in (earlier, later))
    year, days = (2024, 366) if leaps else (2023, 365)
    between = (later.replace(year=year) - earlier.replace(year=year)).total_seconds()
    half = days * 86_400 / 2
    return (between + half) % (2 * half) - half
