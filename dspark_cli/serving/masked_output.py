"""A server's output with its secrets masked, and nothing else changed."""

import re
from collections.abc import Collection
from typing import IO

from dspark_cli.serving.secrets import MASK

LONGEST_LINE = 1 << 16


class MaskedOutput:
    """Takes what a server prints as it comes, and writes it to `file` line by line, for a secret may come in two parts.

    Without secrets every byte is written at once. A secret inside a longer word is left: it is another word.
    """

    def __init__(self, file: IO[bytes], secrets: Collection[str]) -> None:
        longest_first = sorted(secrets, key=len, reverse=True)
        words = b"|".join(re.escape(secret.encode("utf-8", "surrogateescape")) for secret in longest_first)
        self._secret = re.compile(rb"(?<![\w-])(?:" + words + rb")(?![\w-])") if words else None
        self._file = file
        self._rest = b""

    def write(self, chunk: bytes) -> None:
        """Raises OSError as `file` does."""
        if self._secret is None:
            self._file.write(chunk)
            return
        whole, self._rest = _whole_lines(self._rest + chunk)
        if whole:
            self._file.write(self._secret.sub(MASK.encode(), whole))

    def end(self) -> None:
        """Write the last line, which has no end. Raises OSError."""
        rest, self._rest = self._rest, b""
        if rest and self._secret is not None:
            self._file.write(self._secret.sub(MASK.encode(), rest))

    def masked(self, line: str) -> str:
        """`line` for other eyes, masked as in the file."""
        if self._secret is None:
            return line
        masked = self._secret.sub(MASK.encode(), line.encode("utf-8", "surrogateescape"))
        return masked.decode("utf-8", "surrogateescape")


def _whole_lines(text: bytes) -> tuple[bytes, bytes]:
    end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    return (text, b"") if len(text) - end > LONGEST_LINE else (text[:end], text[end:])
