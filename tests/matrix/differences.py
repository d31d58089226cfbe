"""Cells of the matrix that are not as the sources say, one line each."""

from collections.abc import Mapping

from dspark_cli.patches.matrix import Cell


def differences(table: Mapping[str, Cell], sources: Mapping[str, Cell]) -> list[str]:
    return [
        f"{patch}: the table has {_told(table.get(patch))}, the sources have {_told(sources.get(patch))}"
        for patch in dict.fromkeys([*table, *sources])
        if table.get(patch) != sources.get(patch)
    ]


def _told(cell: Cell | None) -> str:
    return f"{cell.status} ({cell.digest})" if cell else "nothing"
