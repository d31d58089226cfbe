"""The JSON in a result file: one document, or one a line."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Documents:
    """`found` are those that can be read; `broken` is whether something follows or stands that cannot."""

    found: tuple[Any, ...]
    broken: bool

    @property
    def objects(self) -> tuple[dict[str, Any], ...]:
        """The JSON objects, those in a list of objects included."""
        flat = (each for document in self.found for each in (document if isinstance(document, list) else [document]))
        return tuple(each for each in flat if isinstance(each, dict))


def read_documents(content: bytes) -> Documents:
    """NaN and Infinity are taken as numbers, which Python's json writes."""
    from pydantic_core import from_json

    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        return Documents((from_json(content),), broken=False)
    except ValueError:
        pass
    found = []
    for line in content.splitlines():
        if line.strip():
            try:
                found.append(from_json(line))
            except ValueError:
                return Documents(tuple(found), broken=True)
    return Documents(tuple(found), broken=False)
