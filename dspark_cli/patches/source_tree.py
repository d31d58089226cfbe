"""A vLLM source tree, read and never imported: the text and the digest of its symbols."""

import ast
import hashlib
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dspark_cli.patches.patch import Symbol

DIGEST_CHARACTERS = 16
ABSENT = "absent"
LARGEST_FILE = 4 << 20
"""Bytes; the largest of vLLM's own that a patch rests on has a tenth of them."""
Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Assigning = ast.Assign | ast.AnnAssign | ast.AugAssign


class UnreadableSource(Exception):
    """A file is there and says nothing: its message is one sentence with the file's name."""


@dataclass
class SourceTree:
    """`package` is the folder `vllm` itself, the one that holds v1/; in a wheel, the folder in the archive."""

    package: Path | zipfile.Path
    _parsed: dict[str, tuple[list[str], ast.Module] | UnreadableSource | None] = field(default_factory=dict)

    def text(self, symbol: Symbol) -> str | None:
        """The symbol's source lines, decorators and comments within included; None where there is no such symbol.

        A name that is bound several times (overloads, the branches of an `if` or `try`, a property and its setter) has
        the lines of all its definitions, in their order.

        Raises:
            UnreadableSource: the file is no Python that this interpreter understands, or cannot be read.
        """
        parsed = self._parse(symbol.file)
        if parsed is None:
            return None
        lines, module = parsed
        if not symbol.name:
            return _joined(lines)
        found: list[ast.stmt] = []
        scopes: Sequence[ast.AST] = [module]
        for part in symbol.name.split("."):
            scopes = found = [child for scope in scopes for child in _children(scope, part)]
        return "".join(_joined(lines[_first_line(node) - 1 : node.end_lineno]) for node in found) if found else None

    def digest(self, symbols: Sequence[Symbol]) -> str:
        """One digest of all `symbols` in order; trailing blanks do not count, everything else does.

        Raises:
            UnreadableSource: as `text`.
        """
        joint = hashlib.sha256()
        for symbol in symbols:
            text = self.text(symbol)
            own = ABSENT if text is None else "\n".join(line.rstrip(" \t") for line in _lines(text))
            joint.update(hashlib.sha256(own.encode()).digest())
        return joint.hexdigest()[:DIGEST_CHARACTERS]

    def _parse(self, file: str) -> tuple[list[str], ast.Module] | None:
        if file not in self._parsed:
            try:
                source = read_source(self.package, file)
                self._parsed[file] = None if source is None else (_lines(source), _module(source, file))
            except UnreadableSource as error:
                self._parsed[file] = error
        parsed = self._parsed[file]
        if isinstance(parsed, UnreadableSource):
            raise parsed
        return parsed


def read_source(package: Path | zipfile.Path, file: str) -> str | None:
    """The file's text with "\n" line ends; None where there is no such file."""
    path = package / file
    try:
        if isinstance(path, Path) and not path.resolve().is_relative_to(Path(str(package)).resolve()):
            raise UnreadableSource(f"{file} is a link to outside the package")
        if not path.is_file():
            if path.exists():
                raise UnreadableSource(f"{file} is no regular file")
            return None
        with path.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except UnreadableSource:
        raise
    except OSError as error:
        raise UnreadableSource(f"{file} cannot be read ({error.strerror or error})") from None
    except Exception as error:  # damaged archives: a dozen kinds, for each compression has its own; loops of links
        raise UnreadableSource(f"{file} cannot be read ({error})") from None
    if len(content) > LARGEST_FILE:
        raise UnreadableSource(f"{file} has more than {LARGEST_FILE:,} bytes")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise UnreadableSource(f"{file} is not UTF-8 text") from None


def _module(source: str, file: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of vLLM's own escapes: no reader's concern
            return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UnreadableSource(f"{file} does not parse ({error})") from None
    except (RecursionError, MemoryError):
        raise UnreadableSource(f"{file} does not parse (nested too deeply)") from None


def _lines(text: str) -> list[str]:
    """Lines as Python counts them: str.splitlines() also splits at form feeds and at separators within strings."""
    return text.removesuffix("\n").split("\n")


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _children(scope: ast.AST, name: str) -> Iterator[ast.stmt]:
    """The statements that bind `name` in this scope, in their order, those under `if`, `try`, `with` and loops too."""
    waiting: list[ast.AST] = list(reversed(getattr(scope, "body", [])))
    while waiting:  # a stack, for a chain of `elif` is as deep as it is long
        node = waiting.pop()
        if isinstance(node, Named):
            if node.name == name:
                yield node
        elif isinstance(node, Assigning):
            if name in _assigned(node):
                yield node
        else:
            parts = ("body", "cases", "handlers", "orelse", "finalbody")
            within = [child for part in parts for child in getattr(node, part, [])]
            waiting.extend(reversed(within))


def _assigned(node: Assigning) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {part.id for target in targets for part in _target_names(target)}


def _target_names(target: ast.expr) -> Iterator[ast.Name]:
    """The names that an assignment to `target` binds; not those within `a.b = ...` and `a[b] = ...`."""
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, ast.Starred):
        yield from _target_names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _target_names(part)


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, Named) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
