"""A result dataclass as one JSON document."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from dspark_cli import __version__


def to_json(command: str, result: Any) -> str:
    """`result` (a dataclass instance) as JSON text; NaN never appears, for no JSON reader need accept it."""
    document = {"command": command, "dspark_tool": __version__, **dataclasses.asdict(result)}
    return json.dumps(document, indent=2, default=_plain, allow_nan=False)


def print_json(command: str, result: Any) -> None:
    sys.stdout.write(to_json(command, result) + "\n")


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
