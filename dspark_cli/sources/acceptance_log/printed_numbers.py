"""Numbers as vLLM prints them, rounded, and what is wrong with a line whose numbers cannot be used."""

NUMBER = r"(?:\d{1,9}\.\d{1,3}|nan|inf)"


class Unreadable(Exception):
    """The line is cut short, or mixed with other text."""


class Contradictory(Exception):
    """No counts would have been printed like that."""


def agrees(printed: str, value: float, reach: float) -> bool:
    """Whether `value` may have been printed so; `reach` is half of the last place."""
    return abs(float(printed) - value) <= reach + 1e-9
