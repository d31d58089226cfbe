"""The lines of a log of any size, each of bounded length."""

import re
from collections.abc import Iterator
from typing import IO

LONGEST_LINE = 1 << 16

_ANYTHING = re.compile(b"")


def bounded_lines(log: IO[bytes], holding: re.Pattern[bytes] = _ANYTHING) -> Iterator[str]:
    """Lines of at most LONGEST_LINE bytes that hold a match; what is beyond that of a longer one is passed over.

    Raises:
        OSError: the log cannot be read.
    """
    at_start = True
    while part := log.readline(LONGEST_LINE):
        if at_start and holding.search(part):
            yield part.decode("utf-8", errors="replace").rstrip("\r\n")
        at_start = part.endswith(b"\n")
