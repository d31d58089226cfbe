"""Where vLLM's sources are in what a user gives: the package, a folder around it, or a wheel. Nothing is imported."""

import ast
import re
import textwrap
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from dspark_cli.errors import BadInput
from dspark_cli.patches.patch import Symbol
from dspark_cli.patches.source_tree import SourceTree, UnreadableSource, read_source
from dspark_cli.sources.vllm_install import VllmInstall

VERSION_ALONE = re.compile(r"v?\d+(\.\d+)+[\w.+-]*")
VERSION_SYMBOL = Symbol("_version.py", "__version__")
Place = Path | zipfile.Path


@dataclass(frozen=True)
class FoundVllm:
    """A vLLM to judge: the path it was found by, and the version it says it has."""

    source: str
    version: str | None
    tree: SourceTree


def installed_vllm(install: VllmInstall) -> FoundVllm:
    return FoundVllm(str(install.location), install.version, SourceTree(install.location))


def given_vllm(given: str) -> FoundVllm:
    """The vLLM in `given`: the folder vllm, one that holds it (site-packages, a clone, an unpacked wheel), or a wheel.

    Raises:
        BadInput: there is none.
    """
    place = _place(given)
    for package in (place / "vllm", place):
        if _is_vllm(package):
            around = place if package != place else Path(given).resolve().parent
            tree = SourceTree(package)
            return FoundVllm(given, _told_version(around) or _version_file(tree), tree)
    raise BadInput(
        f"there is no vLLM in {given}", "give the folder vllm, the site-packages or clone that holds it, or a .whl file"
    )


def _place(given: str) -> Place:
    path = Path(given)
    try:
        if path.is_dir():
            return path
        if path.is_file():
            return zipfile.Path(zipfile.ZipFile(path))
    except Exception as error:  # zipfile has many kinds for what is no archive or a damaged one
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no wheel"
        raise BadInput(
            f"{given} cannot be read: {reason}", "give a folder, or a .whl file as pip downloads it"
        ) from None
    if VERSION_ALONE.fullmatch(given):
        exact = given.removeprefix("v")
        wanted = f"=={exact}" if exact.count(".") > 1 else f"=={exact}.0"
        raise BadInput(
            f"{given} is a version and no path",
            f"fetch that release and give the file: pip download --no-deps --only-binary :all: 'vllm{wanted}'; "
            "known releases: dspark-tool patches --releases",
        )
    what = f"{given} is neither a folder nor a file" if _is_there(path) else f"there is no {given}"
    raise BadInput(what, "give the folder vllm, the site-packages that holds it, or a .whl file")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _is_vllm(package: Place) -> bool:
    try:
        return (package / "__init__.py").is_file() and ((package / "v1").is_dir() or package.name == "vllm")
    except OSError:
        return False


def _told_version(around: Place) -> str | None:
    """What the metadata beside the package say; None where there are none, or several that differ."""
    told = {version for folder in _dist_infos(around) if (version := _metadata_version(folder)) is not None}
    return told.pop() if len(told) == 1 else None


def _dist_infos(around: Place) -> Iterator[Place]:
    try:
        yield from (folder for folder in around.iterdir() if re.fullmatch(r"vllm(_cpu)?-[^-]+\.dist-info", folder.name))
    except OSError:
        return


def _metadata_version(dist_info: Place) -> str | None:
    try:
        text = read_source(dist_info, "METADATA")
    except UnreadableSource:
        return None
    version: str | None = HeaderParser().parsestr(text or "", headersonly=True)["Version"]
    return version


def _version_file(tree: SourceTree) -> str | None:
    """The string that _version.py assigns to `__version__`, read and not run."""
    try:
        statements = ast.parse(textwrap.dedent(tree.text(VERSION_SYMBOL) or "")).body
    except (UnreadableSource, SyntaxError):
        return None
    for statement in reversed(statements):
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return None
