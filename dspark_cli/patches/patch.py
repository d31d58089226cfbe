"""What a patch is, and how it can stand on one vLLM source tree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a patch stands on a source tree."""

    NATIVE = "native"
    """This vLLM has the fix itself."""
    APPLIES = "applies"
    """This vLLM lacks it and it fits; `dspark-tool serve` adds it where the model runner and the settings need it."""
    NOT_NEEDED = "not needed"
    """What it mends cannot happen in this vLLM."""
    UNSUPPORTED = "unsupported"
    """The source is unknown, or this vLLM lacks the fix and no patch is safe there."""
    FAILED = "failed"
    """It should apply, and its self-test says that it does not work here."""


class Place(StrEnum):
    """The processes of vLLM in which a fix is put on."""

    ENGINE_CORE = "engine core"
    RUNNER_V1 = "workers with model runner V1"
    RUNNER_V2 = "workers with model runner V2"


@dataclass(frozen=True)
class Symbol:
    """A function, class or assignment of vLLM's source: `file` below the package, `name` as Class.method or name.

    `name` may be "" for a whole file. Its digest covers decorators, comments and body.
    """

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}" if self.name else self.file


@dataclass(frozen=True)
class Reading:
    """What was read in known states of a source. `digests` maps the release where each was first seen to the digest.

    evidence: one line with file and symbol that shows it, for people to look up.
    """

    status: Status
    evidence: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Patch:
    """One row of the registry.

    name: what users and logs call it. title: what it mends, one line. symbols: what a judgement rests on; one missing
    has the digest of "absent". readings: every known state of those symbols. Any other state is unsupported.
    entry: "module:function" that applies it inside vLLM, for those that can apply; imported only there.
    place: where `put_on` calls it; None for what the draft context brings, which has its own variable.
    warned_by: where it cannot be patched, which part of the tool warns or refuses ("serve", "inspect-cache: CHECK").
    """

    name: str
    title: str
    symbols: tuple[Symbol, ...]
    readings: tuple[Reading, ...]
    references: tuple[str, ...] = ()
    entry: str | None = None
    place: Place | None = None
    warned_by: str | None = None


@dataclass(frozen=True)
class Judgement:
    """How one patch stands on one source tree, and what says so."""

    patch: str
    title: str
    status: Status
    evidence: str
    digest: str
    references: tuple[str, ...] = ()
    warned_by: str | None = None


@dataclass(frozen=True)
class SourceVerdict:
    """All patches on one source tree, whose version is None where it does not say."""

    source: str
    version: str | None
    judgements: list[Judgement] = field(default_factory=list)
