"""The text and the digest of symbols: all of a symbol counts, and nothing else does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.patches.patch import Symbol
from dspark_cli.patches.source_tree import SourceTree, UnreadableSource


def text_of(source: str, name: str, folder: Path) -> str | None:
    folder.mkdir(exist_ok=True)
    (folder / "x.py").write_text(source, "utf-8")
    return SourceTree(folder).text(Symbol("x.py", name))


@pytest.mark.parametrize(
    ("source", "name", "text"),
    [
        ("def f():\n    return 1\n", "f", "def f():\n    return 1\n"),
        ("async def f(): ...", "f", "async def f(): ...\n"),
        ("@a\n# why\n@b(\n  1)\nclass C: ...\n", "C", "@a\n# why\n@b(\n  1)\nclass C: ...\n"),
        ("class A:\n  class B:\n    x = 1\n", "A.B.x", "    x = 1\n"),
        ("def f():\n  def g(): ...\n", "f.g", "  def g(): ...\n"),
        ("if a:\n  x = 1\nelif b:\n  x = 2\nelse:\n  x = 3\n", "x", "  x = 1\n  x = 2\n  x = 3\n"),
        ("try:\n  import a\nexcept E:\n  def f(): ...\nelse:\n  f = a.f\n", "f", "  def f(): ...\n  f = a.f\n"),
        ("with a:\n  x = 1\nfor _ in b:\n  x = 2\nwhile c:\n  x = 3\n", "x", "  x = 1\n  x = 2\n  x = 3\n"),
        ("match a:\n  case 1:\n    x = 1\n", "x", "    x = 1\n"),
        ("@overload\ndef f(a: int): ...\ndef f(a): ...\n", "f", "@overload\ndef f(a: int): ...\ndef f(a): ...\n"),
        ("class A:\n  def f(self): ...\nclass A:\n  def f(self): 1\n", "A.f", "  def f(self): ...\n  def f(self): 1\n"),
        ("x: int\nx = 1\nx += 1\n", "x", "x: int\nx = 1\nx += 1\n"),
        ("(a, [b, *c]) = d\n", "c", "(a, [b, *c]) = d\n"),
        ("a.x = 1\nb[x] = 2\nx.y: int = 3\n", "x", None),
        ("if a:\n  class B: ...\n", "B.f", None),
        ("x = 1\n", "y", None),
        ("a = '\x0c\x1c\u2028'\nb = 2\n", "b", "b = 2\n"),
        ("\ufeffa = 1\r\nb = 2\r\n", "b", "b = 2\n"),
    ],
)
def test_a_symbols_text_is_all_its_definitions(tmp_path: Path, source: str, name: str, text: str | None) -> None:
    assert text_of(source, name, tmp_path) == text


def digest_of(source: str, folder: Path) -> str:
    (folder / "x.py").write_text(source, "utf-8")
    return SourceTree(folder).digest([Symbol("x.py", "f")])


STATEMENTS = st.lists(
    st.sampled_from(["x = 1", "y = 'a  b'", "# why", "if x:\n        y = 2", "z = '''a\n  b'''", "return x"]),
    min_size=1,
    max_size=4,
)


def function(statements: list[str], name: str = "f") -> str:
    return "".join([f"def {name}():\n    pass\n", *(f"    {statement}\n" for statement in statements), "    pass\n"])


@given(STATEMENTS, st.data())
def test_trailing_blanks_do_not_count(
    tmp_path_factory: pytest.TempPathFactory, statements: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    source = function(statements)
    blanks = [data.draw(st.sampled_from(["", " ", "\t", "  \t"])) for _ in source.splitlines()]
    padded = "\n".join(line + blank for line, blank in zip(source.splitlines(), blanks, strict=True))

    assert digest_of(padded, folder) == digest_of(source, folder)


@given(STATEMENTS, STATEMENTS)
def test_all_else_in_the_symbol_counts(
    tmp_path_factory: pytest.TempPathFactory, one: list[str], other: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("tree")

    same = digest_of(function(one), folder) == digest_of(function(other), folder)

    assert same == (one == other)


@given(STATEMENTS, STATEMENTS, STATEMENTS)
def test_other_symbols_do_not_count(
    tmp_path_factory: pytest.TempPathFactory, own: list[str], before: list[str], after: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    among = f"{function(before, 'g')}\n\n{function(own)}\n{function(after, 'h')}"

    assert digest_of(among, folder) == digest_of(function(own), folder)


def test_the_order_of_symbols_counts(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("a = 1\nb = 2\n")
    tree, a, b = SourceTree(tmp_path), Symbol("x.py", "a"), Symbol("x.py", "b")

    assert tree.digest([a, b]) != tree.digest([b, a])


def test_an_unreadable_file_stays_so(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def broken(:\n")
    tree = SourceTree(tmp_path)

    for _ in range(2):
        with pytest.raises(UnreadableSource, match=r"x.py does not parse"):
            tree.text(Symbol("x.py", "f"))


def test_a_digest_stays_the_same_over_versions_of_this_tool(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("class C:\n    @a\n    def f(self):  \n        return 1\n")

    digest = SourceTree(tmp_path).digest([Symbol("x.py", "C.f"), Symbol("x.py", "absent"), Symbol("x.py", "")])

    assert digest == "67a0ccc9e24e8dc2"
