"""One stress case: a block table, its shifts and how the kernel is launched, all from a line of text and a seed."""

import zlib
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from dspark_cli.errors import BadInput

LARGEST_TABLE = 1 << 26
LARGEST_CHUNK = 1 << 15
MOST_WARPS = 32


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
    many warps a program has, and how many entries it loads before its barrier. `prefetch`, `early`: as the kernels'
    `ShiftShape`. `graph`: run as a CUDA graph replay."""

    rows: int
    blocks: int
    shift: Shift
    warps: int = 4
    chunk: int = 1024
    prefetch: bool = False
    early: bool = False
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
    given = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        case = StressCase(
            rows=_whole(given, "rows"),
            blocks=_whole(given, "blocks"),
            shift=Shift(given.pop("shift", "")),
            warps=_power_of_two(given, "warps", 4),
            chunk=_power_of_two(given, "chunk", 1024),
            prefetch=_flag(given, "prefetch"),
            early=_flag(given, "early"),
            mapping=Mapping(given.pop("mapping", "none")),
            gap=_whole(given, "gap", 0),
            graph=_flag(given, "graph"),
        )
        if given:
            raise ValueError(f"{next(iter(given))!r} is no field of a case")
        if not 1 <= case.size <= case.rows * (case.blocks + case.gap) <= LARGEST_TABLE:
            raise ValueError(f"rows x (blocks + gap) must be from 1 to {LARGEST_TABLE:,}")
        if case.warps > MOST_WARPS:
            raise ValueError(f"warps={case.warps} is more than {MOST_WARPS}")
    except ValueError as error:
        raise BadInput(f"--case cannot be read: {error}", "give one like rows=8,blocks=1024,shift=7") from None
    return case


def _plain(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _whole(given: dict[str, str], field: str, default: int | None = None) -> int:
    word = given.pop(field, None)
    if word is None:
        if default is None:
            raise ValueError(f"{field} is missing")
        return default
    if not (word.isascii() and word.isdigit()):
        raise ValueError(f"{field}={word!r} is not a whole number")
    return int(word)


def _power_of_two(given: dict[str, str], field: str, default: int) -> int:
    value = _whole(given, field, default)
    if value < 1 or value & (value - 1) or value > LARGEST_CHUNK:
        raise ValueError(f"{field}={value} is not a power of two up to {LARGEST_CHUNK:,}")
    return value


def _flag(given: dict[str, str], field: str) -> bool:
    word = given.pop(field, "no")
    if word not in ("yes", "no"):
        raise ValueError(f"{field}={word!r} is neither yes nor no")
    return word == "yes"
