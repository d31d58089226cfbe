"""Where this tool keeps files of its own in a user's home."""

import os
from pathlib import Path

from dspark_cli.errors import NotFit


def user_folder(variable: str, under_home: str) -> Path:
    """The tool's folder in the one that `variable` (of the XDG base directories) names, else in the user's home.

    Raises:
        NotFit: there is no home either.
    """
    given = os.environ.get(variable)
    try:
        return (Path(given) if given else Path.home() / under_home) / "dspark-tool"
    except RuntimeError:
        raise NotFit("this user has no home folder", f"set {variable} to a folder that can be written") from None
