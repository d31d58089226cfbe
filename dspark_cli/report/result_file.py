"""A result written to a file, whole or not at all."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from dspark_cli.errors import BadInput


def require_place(path: Path) -> None:
    """Find out, before the work that fills it, whether `path` names a file in a folder that is there.

    Raises:
        BadInput: it does not.
    """
    try:
        if path.is_dir():
            raise _refusal(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
        if not path.resolve().parent.is_dir():
            raise _refusal(path, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))
    except (OSError, RuntimeError) as error:
        raise _refusal(path, error) from None


def write_file(path: Path, text: str) -> None:
    """Write `text` to `path`; what was there stays until all of it is written.

    Raises:
        BadInput: it cannot be written there.
    """
    try:
        if path.exists() and not path.is_file():  # a device or a pipe, which must not be replaced
            path.write_text(text, encoding="utf-8", errors="replace")
            return
        path = path.resolve()  # a link stays one
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise _refusal(path, error) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except OSError as error:
        with suppress(OSError):
            Path(name).unlink()
        raise _refusal(path, error) from None


def _refusal(path: Path, error: OSError | RuntimeError) -> BadInput:
    reason = error.strerror if isinstance(error, OSError) else error
    return BadInput(f"{path} cannot be written ({reason})", "give a file in a folder that you may write to")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
