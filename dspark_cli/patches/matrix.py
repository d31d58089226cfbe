"""How each patch stands on each published vLLM release, as recorded in matrix.json: no source and no network needed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.patches.patch import Judgement, Patch, SourceVerdict, Status
from dspark_cli.patches.source_tree import SourceTree

MATRIX_FILE = Path(__file__).with_name("matrix.json")


@dataclass(frozen=True)
class Cell:
    """One patch on one release. `digest` is the joint one of the patch's symbols there."""

    status: Status
    digest: str


@dataclass(frozen=True)
class Matrix:
    """`releases`: by release, oldest first, and patch. `symbols`: by symbol and digest, the first release with it."""

    releases: dict[str, dict[str, Cell]]
    symbols: dict[str, dict[str, str]]

    def known_digests(self) -> dict[str, set[str]]:
        """By symbol, its digests by itself in all releases."""
        return {symbol: set(first_seen) for symbol, first_seen in self.symbols.items()}


@dataclass(frozen=True)
class PatchHistory:
    """One patch over the releases. `native_since`: from which on all have it; None where the last one has not."""

    name: str
    title: str
    statuses: dict[str, Status]
    native_since: str | None


@dataclass(frozen=True)
class ReleaseTable:
    """What `--releases` shows."""

    patches: list[PatchHistory]

    @property
    def releases(self) -> list[str]:
        """Oldest first."""
        return list(dict.fromkeys(release for patch in self.patches for release in patch.statuses))


def read_matrix(file: Path = MATRIX_FILE) -> Matrix:
    document = json.loads(file.read_text("utf-8"))
    releases = {
        release: {patch: Cell(Status(cell["status"]), cell["digest"]) for patch, cell in row.items()}
        for release, row in document["releases"].items()
    }
    return Matrix(releases, document["symbols"])


def cells(verdict: SourceVerdict) -> dict[str, Cell]:
    return {judgement.patch: _cell(judgement) for judgement in verdict.judgements}


def _cell(judgement: Judgement) -> Cell:
    return Cell(judgement.status, judgement.digest)


def first_seen(trees: Iterable[tuple[str, SourceTree]], patches: Sequence[Patch]) -> dict[str, dict[str, str]]:
    """`Matrix.symbols` of releases, oldest first, and their trees.

    Raises:
        UnreadableSource: a release cannot be read.
    """
    symbols = list(dict.fromkeys(symbol for patch in patches for symbol in patch.symbols))
    seen: dict[str, dict[str, str]] = {str(symbol): {} for symbol in symbols}
    for release, tree in trees:
        for symbol in symbols:
            seen[str(symbol)].setdefault(tree.digest([symbol]), release)
    return seen


def release_table(matrix: Matrix, patches: Sequence[Patch]) -> ReleaseTable:
    """The registry's patches over the recorded releases; releases without a cell for a patch are left out there."""
    return ReleaseTable([_history(matrix, patch) for patch in patches])


def _history(matrix: Matrix, patch: Patch) -> PatchHistory:
    statuses = {release: row[patch.name].status for release, row in matrix.releases.items() if patch.name in row}
    return PatchHistory(patch.name, patch.title, statuses, native_since(statuses))


def releases_with(matrix: Matrix, patch: str, *statuses: Status) -> list[str]:
    """Those, oldest first, on which `patch` has one of `statuses`."""
    return [release for release, row in matrix.releases.items() if patch in row and row[patch].status in statuses]


def span(matrix: Matrix, releases: Sequence[str]) -> str:
    """`releases`, oldest first, in words: an unbroken run by its ends."""
    known = list(matrix.releases)
    if len(releases) < 3 or known[known.index(releases[0]) :][: len(releases)] != list(releases):
        return " and ".join(filter(None, [", ".join(map(short, releases[:-1])), *map(short, releases[-1:])]))
    return f"{short(releases[0])} to {short(releases[-1])}"


def short(release: str) -> str:
    """0.33 for 0.33.0: columns are dear."""
    return release.removesuffix(".0") if release.count(".") == 2 else release


def native_since(statuses: dict[str, Status]) -> str | None:
    """The first of the releases, oldest first, from which on every one is native."""
    since = None
    for release, status in reversed(statuses.items()):
        if status is not Status.NATIVE:
            break
        since = release
    return since
