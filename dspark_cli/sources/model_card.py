"""The mean acceptance lengths that a drafter's model card states, in the tables of its Markdown."""

import re
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.errors import BadInput, CannotSay

LARGEST_CARD = 4 * 1024 * 1024
LENGTH_HEADING = re.compile(r"accept\w*\s+len|mean\s+accept(?!\w*\s+rate)|\bAL\b", re.IGNORECASE)
NUMBER = r"([0-9]{1,2}(?:\.[0-9]{1,4})?)"
LENGTHS = re.compile(rf"[*_~`\s]*{NUMBER}(?:\s*[-\u2013\u2014]\s*{NUMBER})?[*_~`x\s]*")
"""One length, or the least and the greatest of a range."""
RULING = re.compile(r":?-+:?")
TOKENS_HEADING = re.compile(r"[*`]*\s*[kK]\s*=\s*([0-9]{1,3})\s*[*`]*")
"""How the cards of the Speculators collection head their columns: one for each number of drafted tokens."""
LONGEST_LENGTH = 65.0
LONGEST_LINE = 4096


def stated_lengths(card: Path, tokens: int | None) -> list[float]:
    """Every acceptance length that a table of `card`, a README.md or the drafter's folder that holds it, states for
    `tokens` drafted tokens (None where they are not known).

    Raises:
        BadInput: it cannot be read.
        CannotSay: no table of it states one.
    """
    try:
        file = card / "README.md" if card.is_dir() else card
        with file.open("rb") as opened:
            text = opened.read(LARGEST_CARD).decode("utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{card} cannot be read ({error.strerror})", "give the drafter's README.md") from None
    lengths = [length for table in _tables(text) for length in _lengths(table, tokens)]
    if not lengths:
        drafted = f" for {tokens} tokens" if tokens is not None else ""
        raise CannotSay(
            f"{file} has no table with an acceptance length{drafted}",
            "give the band yourself: --expect LOW-HIGH, such as 2.8-3.6",
        )
    return lengths


@dataclass
class _Table:
    """`title` is the heading above it, `rows` its cells without the ruling."""

    title: str
    rows: list[list[str]]


def _tables(text: str) -> list[_Table]:
    tables, title, open_table = [], "", False
    for line in text.splitlines():
        if line.lstrip().startswith("|") and len(line) < LONGEST_LINE:
            if not open_table:
                tables.append(_Table(title, []))
            tables[-1].rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            open_table = True
            continue
        open_table = False
        if line.strip():
            title = line[:LONGEST_LINE]
    return [table for table in tables if len(table.rows) > 2 and all(map(RULING.fullmatch, table.rows[1]))]


def _lengths(table: _Table, tokens: int | None) -> list[float]:
    heading, rows = table.rows[0], table.rows[2:]
    by_tokens = {int(found[1]): at for at, cell in enumerate(heading) if (found := TOKENS_HEADING.fullmatch(cell))}
    if by_tokens:
        column = by_tokens.get(tokens if tokens is not None else max(by_tokens))
        columns = [column] if column is not None and LENGTH_HEADING.search(table.title) else []
    else:
        columns = [at for at, cell in enumerate(heading) if LENGTH_HEADING.search(cell)]
    cells = [row[at] for row in rows for at in columns if at < len(row)]
    if not by_tokens:
        cells += [cell for row in rows if LENGTH_HEADING.search(row[0]) for cell in row[1:]]
    return [length for cell in cells for length in _lengths_in(cell)]


def _lengths_in(cell: str) -> list[float]:
    found = LENGTHS.fullmatch(cell)
    lengths = [float(number) for number in found.groups() if number] if found else []
    return [length for length in lengths if 1 <= length <= LONGEST_LENGTH]
