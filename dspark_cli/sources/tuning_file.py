"""The results file of a tune: JSON lines, only ever appended to, each on the disk before the next is measured.

The first line says what was asked. Then come measurements, candidates that failed, and at the end of a tune the profile
that it found. A crash may leave half a line at the end, which is cut off.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from dspark_cli import __version__
from dspark_cli.errors import BadInput, NotFit
from dspark_cli.facts.measured_profile import MeasuredProfile
from dspark_cli.facts.tuning import Candidate, FailedCandidate, Measurement, TuningQuestion

FORMAT = 1
MAGIC = f'{{"dspark_tool_tune": {FORMAT},'.encode()
LARGEST_FILE = 64 << 20
ANOTHER_FILE = "give another file: --results FILE"
Key = tuple[Candidate, int, bool]
Held = TypeVar("Held")


class TuningFile:
    """An open, locked results file. `measurements` holds what is measured; `cut_off` is whether half a line was."""

    def __init__(self, path: Path, file: BinaryIO, question: TuningQuestion) -> None:
        self.path = path
        self._file = file
        self.measurements: dict[Key, Measurement] = {}
        self._profile: MeasuredProfile | None = None
        content = _content(file, path)
        whole = content[: content.rfind(b"\n") + 1]
        self.cut_off = whole != content
        lines = _documents(whole, path)
        if not lines:
            self._begin(question, content)
            return
        _require_same(question, _parsed(TuningQuestion, lines[0].get("asked"), path, 1), path)
        for number, line in enumerate(lines[1:], start=2):
            if "measured" in line:
                measurement = _parsed(Measurement, line["measured"], path, number)
                self.measurements.setdefault(measurement.key, measurement)
            if "profile" in line:
                self._profile = _parsed(MeasuredProfile, line["profile"], path, number)
        self._cut_to(len(whole))

    def add(self, measurement: Measurement) -> None:
        """Raises NotFit: the disk is full."""
        self._append({"measured": dataclasses.asdict(measurement)})
        self.measurements[measurement.key] = measurement

    def add_failure(self, failed: FailedCandidate) -> None:
        self._append({"failed": dataclasses.asdict(failed)})

    def add_profile(self, profile: MeasuredProfile) -> None:
        """Unless it is the one that the file ends with."""
        if profile != self._profile:
            self._append({"profile": dataclasses.asdict(profile)})
            self._profile = profile

    def _begin(self, question: TuningQuestion, content: bytes) -> None:
        """Write the first line; what is there can only be half of one."""
        if not MAGIC.startswith(content[: len(MAGIC)]) and not content.startswith(MAGIC):
            raise _no_results(self.path)
        self._cut_to(0)
        self._append({"dspark_tool_tune": FORMAT, "by": __version__, "asked": dataclasses.asdict(question)})
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _cut_to(self, length: int) -> None:
        self._file.truncate(length)
        self._file.seek(length)

    def _append(self, line: dict[str, Any]) -> None:
        at = self._file.tell()
        rest = memoryview(json.dumps(line, allow_nan=False).encode() + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cut_to(at)  # the next line must not follow half of this one
            raise NotFit(
                f"{self.path} cannot be written: {error.strerror}", "make room; the same command then goes on"
            ) from None


@contextmanager
def open_tuning_file(path: Path, question: TuningQuestion) -> Iterator[TuningFile]:
    """The results file, made where there is none, locked for the time of the block.

    Raises:
        BadInput: it is no results file, is damaged in the middle, or holds the answers to another question.
        NotFit: another tune uses it, or it cannot be written.
    """
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotFit(f"another tune is writing {path}", f"wait for it, or {ANOTHER_FILE}") from None
        yield TuningFile(path, file, question)


def read_profile(path: Path) -> MeasuredProfile:
    """The profile that a finished tune wrote; the last one, where it was resumed for more.

    Raises:
        BadInput: it cannot be read, is no results file, or holds no profile yet.
    """
    try:
        with path.open("rb") as file:
            content = _content(file, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "give the results file of a tune") from None
    lines = _documents(content[: content.rfind(b"\n") + 1], path)
    found = [(number, line["profile"]) for number, line in enumerate(lines, start=1) if "profile" in line]
    if not found:
        raise BadInput(f"{path} has no profile yet", "let the tune end: the same dspark-tool tune command goes on")
    number, profile = found[-1]
    return _parsed(MeasuredProfile, profile, path, number)


def _opened(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666), "r+b", buffering=0
        )
    except OSError as error:
        raise NotFit(f"{path} cannot be written: {error.strerror}", ANOTHER_FILE) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput(f"{path} is no file", ANOTHER_FILE)
    return file


def _content(file: BinaryIO, path: Path) -> bytes:
    content = file.read(LARGEST_FILE + 1) or b""
    while len(content) <= LARGEST_FILE and (more := file.read(LARGEST_FILE + 1 - len(content))):
        content += more
    if len(content) > LARGEST_FILE:
        raise BadInput(f"{path} is larger than {LARGEST_FILE >> 20} MiB", ANOTHER_FILE)
    return content


def _documents(whole: bytes, path: Path) -> list[dict[str, Any]]:
    """The JSON object of each line. Raises BadInput where the first line is not that of a results file."""
    from pydantic_core import from_json

    found: list[dict[str, Any]] = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        if number == 1 and not line.startswith(MAGIC):
            raise _no_results(path)
        try:
            document = from_json(line, allow_inf_nan=False)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise BadInput(f"line {number} of {path} is damaged", f"take that line out, or {ANOTHER_FILE}")
        found.append(document)
    return found


def _parsed(kind: type[Held], value: object, path: Path, number: int) -> Held:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][:4]))
        raise BadInput(
            f"line {number} of {path} is damaged: {where} {first['msg']}"[:300],
            f"take that line out, or {ANOTHER_FILE}",
        ) from None


def _require_same(asked: TuningQuestion, held: TuningQuestion, path: Path) -> None:
    if asked == held:
        return
    now, then = dataclasses.asdict(asked), dataclasses.asdict(held)
    name = next(name for name in now if now[name] != then[name])
    raise BadInput(
        f"{path} holds a tune of another question: its {name} is {_short(then[name])}, now it is {_short(now[name])}",
        f"{ANOTHER_FILE}, or ask the same again to go on with it",
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}..."


def _no_results(path: Path) -> BadInput:
    return BadInput(f"{path} is not the results file of a tune", ANOTHER_FILE)
