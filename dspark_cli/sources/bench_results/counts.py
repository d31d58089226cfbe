"""Numbers of a result file as counts, and what is said where they cannot be that."""

from dspark_cli.errors import NotFit
from dspark_cli.facts.draft_counters import DraftCounters

LARGEST_COUNT = 2**53
"""Above it a float, which a JSON number may be, no longer tells whole numbers apart."""

MOST_POSITIONS = 1024
"""More than any drafter drafts: a made-up file must not take the memory."""


def count(value: object, what: str) -> int:
    """`value` as a whole number of 0 or more; 3.33E2 is one.

    Raises:
        NotFit: it is none.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LARGEST_COUNT
        or value != int(value)
    ):
        raise unusable(f"its {what} is {shortened(value)}, not a count")
    return int(value)


def plausible(counted: DraftCounters) -> DraftCounters:
    """Raises NotFit: no engine can have counted this."""
    if why := counted.implausible():
        raise unusable(f"in its figures {why}")
    return counted


def unusable(why: str) -> NotFit:
    return NotFit(
        f"the result file cannot be used: {why}", "see whether another tool changed it; run the benchmark again"
    )


def cut_short(tool: str) -> NotFit:
    return NotFit(f"this is a result of {tool}, but it is cut short", "copy it again, or run the benchmark again")


def seconds(value: object) -> float | None:
    """`value` as a length of time; None where it is none."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= LARGEST_COUNT else None


def name_in(value: object) -> str:
    return value if isinstance(value, str) else ""


def shortened(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number without end"
    return text if len(text) <= 40 else f"{text[:40]}..."
