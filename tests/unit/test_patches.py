"""Patches judged on small source trees: what is known gets its status, everything else is unsupported."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_cli.commands.patches import is_finding
from dspark_cli.errors import BadInput, NotFit
from dspark_cli.findings.cache.check import CHECKS
from dspark_cli.patches.found_vllm import given_vllm, installed_vllm
from dspark_cli.patches.judge import UNREADABLE, judge
from dspark_cli.patches.matrix import Cell, Matrix, cells, native_since, read_matrix, release_table, span
from dspark_cli.patches.next_steps import next_step
from dspark_cli.patches.patch import Judgement, Patch, Reading, Status, Symbol
from dspark_cli.patches.registry import PATCHES
from dspark_cli.patches.source_tree import LARGEST_FILE, SourceTree
from dspark_cli.sources.vllm_install import find_vllm
from tests.live_server import TOOL, offline_environment
from tests.matrix.differences import differences
from tests.matrix.readme_table import readme_table, table_in_readme
from tests.paths import TESTS

SOURCE = """
import torch


class Speculator:
    width: int = 3

    @torch.inference_mode()
    def propose(self, tokens):
        # the drafter's own step
        return tokens + 1

    def other(self):
        return 0


LIMIT = 7
"""
PROPOSE = Symbol("v1/spec.py", "Speculator.propose")
LIMIT = Symbol("v1/spec.py", "LIMIT")
GONE = Symbol("v1/gone.py", "Nothing")


def vllm_folder(around: Path, source: str = SOURCE) -> Path:
    package = around / "vllm"
    (package / "v1").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "v1" / "spec.py").write_text(source, "utf-8")
    return package


def patch_of(digest: str, *symbols: Symbol, status: Status = Status.NATIVE) -> Patch:
    reading = Reading(status, "v1/spec.py: Speculator.propose adds one", {"1.0.0": digest})
    return Patch("one-more", "adds one", symbols, (reading,), ("https://example.org/1",), warned_by="serve")


def judged(package: Path, patch: Patch, known: dict[str, set[str]] | None = None) -> Judgement:
    return judge(given_vllm(str(package)), [patch], known).judgements[0]


@pytest.mark.parametrize("status", list(Status))
def test_a_known_digest_gives_its_reading(tmp_path: Path, status: Status) -> None:
    package = vllm_folder(tmp_path)
    digest = SourceTree(package).digest([PROPOSE, LIMIT])

    told = judged(package, patch_of(digest, PROPOSE, LIMIT, status=status))

    assert (told.status, told.evidence, told.digest) == (status, "v1/spec.py: Speculator.propose adds one", digest)
    assert (told.references, told.warned_by) == (("https://example.org/1",), "serve")


def test_a_changed_symbol_is_unsupported_and_named(tmp_path: Path) -> None:
    tree = SourceTree(vllm_folder(tmp_path / "old"))
    known = {str(symbol): {tree.digest([symbol])} for symbol in (PROPOSE, LIMIT)}
    changed = vllm_folder(tmp_path / "new", SOURCE.replace("tokens + 1", "tokens + 2"))

    told = judged(changed, patch_of(tree.digest([PROPOSE, LIMIT]), PROPOSE, LIMIT), known)

    assert told.status is Status.UNSUPPORTED
    assert told.evidence == "unknown source: v1/spec.py: Speculator.propose (unknown state)"


def test_an_absent_symbol_is_unsupported_and_named(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)

    told = judged(package, patch_of("0" * 16, GONE))

    assert told.status is Status.UNSUPPORTED
    assert told.evidence == "unknown source: v1/gone.py: Nothing (absent)"


def test_absence_can_be_what_a_reading_knows(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)

    told = judged(package, patch_of(SourceTree(package).digest([GONE]), GONE, status=Status.NOT_NEEDED))

    assert told.status is Status.NOT_NEEDED


def test_known_states_that_are_new_together_are_unsupported(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)
    known = {str(symbol): {SourceTree(package).digest([symbol])} for symbol in (PROPOSE, LIMIT)}

    told = judged(package, patch_of("0" * 16, PROPOSE, LIMIT), known)

    assert told.status is Status.UNSUPPORTED
    assert "together: v1/spec.py: Speculator.propose, v1/spec.py: LIMIT" in told.evidence


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def broken(:\n", "does not parse (invalid syntax"),
        (b"x = 1\0\n", "does not parse"),
        (b"x = " + b"-" * 100_000 + b"1\n", "does not parse (nested too deeply)"),
        (b"x = 1" + b"+1" * 100_000, "does not parse (nested too deeply)"),
        (b"if a:\n x = 1\n" + b"elif b:\n x = 1\n" * 20_000, "does not parse (nested too deeply)"),
        (b"name = '\xff'\n", "is not UTF-8 text"),
        (b"#" * (LARGEST_FILE + 1), "has more than 4,194,304 bytes"),
    ],
    ids=["syntax", "null", "unary", "sum", "elif", "latin-1", "huge"],
)
def test_a_file_that_says_nothing_is_unsupported(tmp_path: Path, content: bytes, reason: str) -> None:
    package = vllm_folder(tmp_path)
    (package / "v1" / "spec.py").write_bytes(content)

    told = judged(package, patch_of("0" * 16, PROPOSE, LIMIT))

    assert (told.status, told.digest) == (Status.UNSUPPORTED, UNREADABLE)
    assert told.evidence.startswith(f"v1/spec.py {reason}")


def test_no_link_is_followed_out_of_the_package(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)
    spec = package / "v1" / "spec.py"
    spec.rename(tmp_path / "spec.py")
    spec.symlink_to(tmp_path / "spec.py")

    told = judged(package, patch_of("0" * 16, PROPOSE))

    assert told.evidence == "v1/spec.py is a link to outside the package"


def test_a_package_may_be_a_link_itself(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path / "real")
    (tmp_path / "vllm").symlink_to(package)

    told = judged(tmp_path / "vllm", patch_of(SourceTree(package).digest([PROPOSE]), PROPOSE))

    assert told.status is Status.NATIVE


def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)
    (package / "v1" / "spec.py").unlink()
    os.mkfifo(package / "v1" / "spec.py")

    told = judged(package, patch_of("0" * 16, PROPOSE))

    assert told.evidence == "v1/spec.py is no regular file"


def test_a_loop_of_links_is_unsupported(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)
    (package / "v1" / "spec.py").unlink()
    (package / "v1" / "spec.py").symlink_to(package / "v1" / "spec.py")

    told = judged(package, patch_of("0" * 16, PROPOSE))

    assert (told.status, told.digest) == (Status.UNSUPPORTED, UNREADABLE)


@pytest.mark.parametrize("below", [".", "vllm"])
def test_the_package_is_found_in_itself_and_in_the_folder_around_it(tmp_path: Path, below: str) -> None:
    vllm_folder(tmp_path)
    (tmp_path / "vllm-9.8.7.dist-info").mkdir()
    (tmp_path / "vllm-9.8.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\nName: vllm\nVersion: 9.8.7\n")

    found = given_vllm(str(tmp_path / below))

    assert found.version == "9.8.7"
    assert found.tree.text(LIMIT) == "LIMIT = 7\n"


@pytest.mark.parametrize(
    ("version_file", "version"),
    [
        ("__version__: str\n__version__ = version = '0.33.0'\n", "0.33.0"),
        ("import os\n__version__ = os.environ['X']\n", None),
        ("raise SystemExit(1)\n", None),
        ("def broken(:\n", None),
    ],
)
def test_a_version_file_is_read_and_not_run(tmp_path: Path, version_file: str, version: str | None) -> None:
    (vllm_folder(tmp_path) / "_version.py").write_text(version_file)

    assert given_vllm(str(tmp_path)).version == version


def test_a_wheel_is_read_as_it_is(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)
    wheel = tmp_path / "vllm-9.8.7-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr("vllm/v1/spec.py", SOURCE)
        archive.writestr("vllm-9.8.7.dist-info/METADATA", "Name: vllm\nVersion: 9.8.7\n\nabout\n")

    found = given_vllm(str(wheel))
    told = judge(found, [patch_of(SourceTree(package).digest([PROPOSE, GONE]), PROPOSE, GONE)]).judgements[0]

    assert found.version == "9.8.7"
    assert told.status is Status.NATIVE


def test_a_damaged_wheel_is_unsupported(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr("vllm/v1/spec.py", SOURCE)
    wheel.write_bytes(wheel.read_bytes().replace(b"tokens + 1", b"tokens + 2"))

    told = judge(given_vllm(str(wheel)), [patch_of("0" * 16, PROPOSE)]).judgements[0]

    assert told.status is Status.UNSUPPORTED
    assert "Bad CRC-32" in told.evidence


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("0.31", "is a version and no path"),
        ("v0.31.0rc1", "is a version and no path"),
        ("no/such/folder", "there is no"),
        ("", "there is no"),
        ("x" * 5000, "cannot be read"),
        (__file__, "cannot be read: it is no wheel"),
        ("/dev/null", "neither a folder nor a file"),
    ],
)
def test_what_is_no_vllm_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, reason: str) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadInput, match=reason):
        given_vllm(given)


def test_a_version_gets_the_command_that_fetches_it() -> None:
    with pytest.raises(BadInput) as raised:
        given_vllm("0.31")

    assert "pip download --no-deps --only-binary :all: 'vllm==0.31.0'" in raised.value.next_step


def test_a_folder_or_wheel_without_vllm_is_bad_input(tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other/__init__.py", "")

    for path in (tmp_path, wheel):
        with pytest.raises(BadInput, match="there is no vLLM in"):
            given_vllm(str(path))


@pytest.mark.parametrize(
    ("statuses", "since"),
    [
        ("uu", None),
        ("un", "1"),
        ("nn", "0"),
        ("nun", "2"),
        ("na", None),
        ("", None),
    ],
)
def test_native_since_is_the_first_release_of_an_unbroken_run(statuses: str, since: str | None) -> None:
    words = {"u": Status.UNSUPPORTED, "n": Status.NATIVE, "a": Status.APPLIES}

    assert native_since({str(number): words[letter] for number, letter in enumerate(statuses)}) == since


def test_every_patch_is_one_row_with_disjoint_readings() -> None:
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)
    for patch in PATCHES:
        digests = [digest for reading in patch.readings for digest in set(reading.digests.values())]
        assert len(set(digests)) == len(digests), patch.name
        assert patch.symbols, patch.name
        lines = [patch.name, patch.title, *(reading.evidence for reading in patch.readings)]
        assert all(line.isprintable() for line in lines), patch.name


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_patch_applies_only_where_there_is_something_to_apply(patch: Patch) -> None:
    module, _, function = (patch.entry or "").partition(":")
    own_source = SourceTree(TESTS.parent / "dspark_cli")
    symbol = Symbol(f"{module.removeprefix('dspark_cli.').replace('.', '/')}.py", function)

    applies = any(reading.status is Status.APPLIES for reading in patch.readings)

    assert applies == (patch.entry is not None)
    assert not applies or own_source.text(symbol) is not None


def test_the_recorded_table_has_every_patch_on_every_release() -> None:
    names = [patch.name for patch in PATCHES]

    rows = read_matrix().releases.values()
    assert all(list(row) == names for row in rows), "run .venv/bin/python -m tests.matrix.regenerate"


def test_recorded_statuses_follow_from_the_readings() -> None:
    by_name = {patch.name: patch for patch in PATCHES}
    for release, row in read_matrix().releases.items():
        for name, cell in row.items():
            known = {
                digest: reading.status for reading in by_name[name].readings for digest in reading.digests.values()
            }
            assert known.get(cell.digest, Status.UNSUPPORTED) == cell.status, (release, name)


def test_the_installed_release_stands_as_the_table_says() -> None:
    try:
        install = find_vllm()
    except NotFit:
        pytest.skip("no vLLM is installed here")
    row = read_matrix().releases.get(install.version)
    if row is None:
        pytest.skip(f"vLLM {install.version} is no release of the table")

    assert differences(row, cells(judge(installed_vllm(install), PATCHES))) == []


def test_the_readme_has_the_recorded_table() -> None:
    in_readme = table_in_readme()

    assert in_readme in (None, readme_table(release_table(read_matrix(), PATCHES)))


def test_the_markdown_table_keeps_its_columns() -> None:
    table = release_table(read_matrix(), PATCHES)
    odd = replace(table, patches=[replace(patch, title="a | b") for patch in table.patches])

    rows = [line for line in readme_table(odd).splitlines() if line.startswith("|")]

    assert len({row.count("|") for row in rows}) == 1


def run_patches(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**offline_environment(), "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run([TOOL, "patches", *arguments], capture_output=True, text=True, timeout=60, env=environment)


def test_help_has_an_example_and_says_what_a_status_means() -> None:
    done = run_patches("--help")

    assert done.returncode == 0
    assert "dspark-tool patches --vllm" in done.stdout
    assert all(f"\n  {status} " in done.stdout for status in Status)


@pytest.mark.parametrize("arguments", [(), ("--releases",), ("--evidence",)])
def test_what_is_shown_fits_80_columns_and_has_no_blanks_at_the_ends(arguments: tuple[str, ...]) -> None:
    done = run_patches(*arguments)

    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert all(len(line) <= 80 and line == line.rstrip() for line in done.stdout.splitlines())


def test_a_patch_is_a_line_under_its_status_and_what_is_missing_has_a_next_step(tmp_path: Path) -> None:
    vllm_folder(tmp_path)

    lines = run_patches("--vllm", str(tmp_path)).stdout.splitlines()

    assert [sum(line.startswith(f"  {patch.name} ") for line in lines) for patch in PATCHES] == [1] * len(PATCHES)
    assert sum(line.startswith("    next: ") for line in lines) == len(PATCHES)
    assert "unsupported: missing here, and no patch is known to be safe" in lines
    assert f"{len(PATCHES)} unsupported" in lines


def test_the_evidence_is_shown_where_it_is_asked_for() -> None:
    try:
        find_vllm()
    except NotFit:
        pytest.skip("no vLLM is installed here")

    brief, full = " ".join(run_patches().stdout.split()), " ".join(run_patches("--evidence").stdout.split())

    assert "SpeculativeConfig.use_eagle_block_drop" in full
    assert "SpeculativeConfig" not in brief
    assert "dspark-tool serve adds here: draft context validity (draft_context_v" in brief


def test_of_another_vllm_it_is_not_said_what_a_start_here_adds(tmp_path: Path) -> None:
    vllm_folder(tmp_path)

    assert "adds here" not in run_patches("--vllm", str(tmp_path)).stdout


RELEASES = ["0.26.0", "0.27.0", "0.27.1", "0.28.0"]


def history(letters: str) -> Matrix:
    """One patch over RELEASES: native, applies, unsupported."""
    words = {"n": Status.NATIVE, "a": Status.APPLIES, "u": Status.UNSUPPORTED}
    cells_ = ({"one-more": Cell(words[letter], "0" * 16)} for letter in letters)
    return Matrix(dict(zip(RELEASES, cells_, strict=True)), {})


@pytest.mark.parametrize(
    ("letters", "version", "warned_by", "step"),
    [
        ("uunn", "0.27.0+cpu", None, "native since 0.27.1: upgrade; nothing in this tool warns of it"),
        ("uuaa", "0.26.0", None, "fits vLLM since 0.27.1: upgrade; nothing in this tool warns of it"),
        ("nnnu", "0.28.0", None, "native in 0.26 to 0.27.1; nothing in this tool warns of it"),
        ("uunn", "0.99.0", None, "native since 0.27.1; nothing in this tool warns of it"),
        ("uunn", None, None, "native since 0.27.1; nothing in this tool warns of it"),
        ("uunn", "0.28.0", None, "this is not 0.28.0 as it was published: --evidence names what differs; nothing in"),
        ("uuuu", "0.28.0", "serve", "dspark-tool serve refuses to start without it, unless --draft-context off"),
        ("uuuu", "0.28.0", "inspect-cache: some-check", "dspark-tool inspect-cache --model MODEL --draft DRAFT warns"),
    ],
)
def test_what_is_missing_has_a_next_step(letters: str, version: str | None, warned_by: str | None, step: str) -> None:
    assert next_step(judged_as(Status.UNSUPPORTED, warned_by), version, history(letters)).startswith(step)


def test_what_failed_can_be_left_out() -> None:
    step = next_step(judged_as(Status.FAILED, "serve"), "0.28.0", history("uuaa"))

    assert step.endswith("dspark-tool serve --without one-more leaves it out")


@pytest.mark.parametrize(
    ("releases", "words"),
    [
        ([], ""),
        (["0.26.0"], "0.26"),
        (["0.26.0", "0.27.0"], "0.26 and 0.27"),
        (["0.26.0", "0.27.0", "0.27.1"], "0.26 to 0.27.1"),
        (["0.26.0", "0.27.0", "0.28.0"], "0.26, 0.27 and 0.28"),
    ],
)
def test_releases_in_words(releases: list[str], words: str) -> None:
    assert span(history("uuuu"), releases) == words


def test_an_unknown_source_ends_with_findings(tmp_path: Path) -> None:
    vllm_folder(tmp_path)

    done = run_patches("--vllm", str(tmp_path), "--json")

    document = json.loads(done.stdout)
    statuses = {judgement["status"] for judgement in document["judgements"]}
    assert (document["command"], document["version"], document["source"]) == ("patches", None, str(tmp_path))
    assert [judgement["patch"] for judgement in document["judgements"]] == [patch.name for patch in PATCHES]
    assert statuses == {"unsupported"}
    assert done.returncode == 1


def judged_as(status: Status, warned_by: str | None) -> Judgement:
    return Judgement("one-more", "adds one", status, "v1/spec.py: LIMIT", "0" * 16, warned_by=warned_by)


@pytest.mark.parametrize(
    ("status", "warned_by", "finding"),
    [
        (Status.UNSUPPORTED, None, True),
        (Status.UNSUPPORTED, "serve", False),
        (Status.FAILED, "serve", True),
        (Status.APPLIES, None, False),
        (Status.NATIVE, None, False),
    ],
)
def test_what_nothing_warns_of_is_a_finding(status: Status, warned_by: str | None, finding: bool) -> None:
    assert is_finding(judged_as(status, warned_by)) is finding


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_warning_that_a_patch_names_is_there(patch: Patch) -> None:
    if patch.warned_by not in (None, "serve"):
        part, _, check = str(patch.warned_by).partition(": ")
        assert part == "inspect-cache"
        assert check in {sys.modules[one.__module__].__dict__["ID"] for one in CHECKS}


def test_the_installed_release_has_nothing_that_nobody_warns_of() -> None:
    try:
        find_vllm()
    except NotFit:
        pytest.skip("no vLLM is installed here")

    assert run_patches().returncode == 0


def test_a_hostile_name_cannot_drive_the_terminal(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path / "\x1b[31m[bold]x\nnative")
    (package / "_version.py").write_text("__version__ = '1\\x1b[2J'\n")

    done = run_patches("--vllm", str(package.parent))

    assert "\x1b" not in done.stdout + done.stderr
    assert "[bold]xnative" in "".join(done.stdout.split())
    assert not done.stderr


def test_the_releases_have_every_patch() -> None:
    done = run_patches("--releases")

    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "patch (columns: vLLM 0.x) 26 27 27.1 28 29 30 31 32 33 native since"
    assert all(any(line.startswith(f"{patch.name} ") for line in lines) for patch in PATCHES)


def test_the_releases_in_json_say_since_when() -> None:
    done = run_patches("--releases", "--json")

    rows = json.loads(done.stdout)["patches"]
    assert [row["name"] for row in rows] == [patch.name for patch in PATCHES]
    assert all(set(row) == {"name", "title", "statuses", "native_since"} for row in rows)


@pytest.mark.parametrize(
    "arguments",
    [("--vllm", "0.31"), ("--vllm", "/no/folder"), ("--vllm", ".", "--releases"), ("--evidence", "--releases")],
)
def test_bad_input_ends_in_one_clear_line(arguments: tuple[str, ...]) -> None:
    done = run_patches(*arguments)

    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "next"]
    assert done.stdout == ""


def test_nothing_of_the_tree_is_imported(tmp_path: Path) -> None:
    package = vllm_folder(tmp_path)
    for file in ("__init__.py", "_version.py", "v1/spec.py"):
        (package / file).write_text("open('ran', 'w')\n")
    program = f"import sys; from dspark_cli.main import app; app(['patches', '--vllm', {str(tmp_path)!r}])"

    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, timeout=60)

    assert not (tmp_path / "ran").exists()
