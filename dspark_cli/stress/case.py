"""One stress case: a block table, its shifts and how the kernel is launched, all from a line of text and a seed."""

import zlib
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from dspark_cli.errors import BadInput


class Shift(StrEnum):
    """How far the rows move. `random` is log-uniform: short shifts overlap most, and there a race shows."""

    ONE = "1"
    SEVEN = "7"
    THIRTY_ONE = "31"
    NEAR_END = "near-end"
    RANDOM = "random"
    MIXED = "mixed"


class Mapping(StrEnum):
    """How rows find their request slot: the row number itself, or an index of either width with padding rows in it."""

    NONE = "none"
    INT32 = "int32"
    INT64 = "int64"


@dataclass(frozen=True)
class StressCase:
    """`blocks` is the width of the table. `gap`: entries between a row's end and the next row. `warps` and `chunk`: how
    many warps a program has, and how many entries it loads before its barrier. `graph`: run as a CUDA graph replay."""

    rows: int
    blocks: int
    shift: Shift
    warps: int = 4
    chunk: int = 1024
    prefetch: bool = False
    mapping: Mapping = Mapping.NONE
    gap: int = 0
    graph: bool = False

    def __str__(self) -> str:
        """As `--case` takes it."""
        return ",".join(f"{name}={_plain(value)}" for name, value in asdict(self).items())

    @property
    def size(self) -> int:
        return self.rows * self.blocks

    def seeded(self, seed: int) -> int:
        """A seed of the case's own, so that it is drawn alike alone and in a sweep."""
        return zlib.crc32(f"{seed}:{self}".encode())

    def smaller(self) -> list["StressCase"]:
        """Cases to try when this one fails: the same with half the rows, or rows half as wide."""
        halves = []
        if self.rows > 1:
            halves.append(replace(self, rows=self.rows // 2))
        if self.blocks > 1:
            halves.append(replace(self, blocks=self.blocks // 2))
        return halves


def parse_case(text: str) -> StressCase:
    """The case that `str` printed.

    Raises:
        BadInput: an unknown field, or a value that is none.
    """
    try:
        given = dict(part.split("=", 1) for part in text.split(","))
        case = StressCase(
            rows=int(given.pop("rows")),
            blocks=int(given.pop("blocks")),
            shift=Shift(given.pop("shift")),
            warps=int(given.pop("warps", 4)),
            chunk=int(given.pop("chunk", 1024)),
            prefetch=_flag(given.pop("prefetch", "no")),
            mapping=Mapping(given.pop("mapping", "none")),
            gap=int(given.pop("gap", 0)),
            graph=_flag(given.pop("graph", "no")),
        )
    except (ValueError, KeyError) as error:
        raise BadInput(f"--case {text!r} cannot be read: {error}", "copy it as stress-shift printed it") from None
    if given or case.rows < 1 or case.blocks < 1 or case.gap < 0:
        raise BadInput(f"--case {text!r} is no case", "give at least rows=8,blocks=1024,shift=7")
    return case


def _plain(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _flag(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(f"{word!r} is neither yes nor no")
    return word == "yes"
