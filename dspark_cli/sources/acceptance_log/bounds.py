"""What keeps memory and names bounded, whatever a log holds."""

from typing import TypeVar

Value = TypeVar("Value")

MOST_KEPT = 1024
"""Processes, and engines of theirs, that are kept apart."""
LONGEST_NAME = 200


def remember(table: dict[str, Value], process: str, value: Value) -> None:
    """Enters what is known of a process; only the latest MOST_KEPT processes stay in the table."""
    table.pop(process, None)
    if len(table) >= MOST_KEPT:
        del table[next(iter(table))]
    table[process] = value


def printable_name(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:LONGEST_NAME])
