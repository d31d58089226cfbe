"""A result dataclass as one JSON document."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from dspark_cli import __version__
from dspark_cli.errors import ToolError
from dspark_cli.report.console import write_result


def to_json(command: str, result: Any) -> str:
    """`result` (a dataclass instance) as JSON text; NaN never appears, for no JSON reader need accept it."""
    document = {"command": command, "dspark_tool": __version__, **dataclasses.asdict(result)}
    return json.dumps(document, indent=2, default=_plain, allow_nan=False)


def print_json(command: str, result: Any) -> None:
    write_result(to_json(command, result) + "\n")


def print_json_error(error: ToolError) -> None:
    document = {"dspark_tool": __version__, "error": error.what, "next": error.next_step, "exit_code": error.exit_code}
    write_result(json.dumps(document, indent=2) + "\n")


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
