"""Files of every kind that holds draft acceptance: each is known by what is in it, and what is none is named."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, NotFit, ToolError
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.profiling.judge import report_on
from dspark_cli.report.acceptance_csv import acceptance_csv
from dspark_cli.report.json_document import to_json
from dspark_cli.sources import acceptance_file
from dspark_cli.sources.acceptance_file import read_acceptance_file
from tests.paths import FIXTURES

PAGE = FIXTURES / "metrics-0.32-cpu-dflash.txt"
LOGS = [
    path
    for path in sorted((FIXTURES / "logs").glob("acceptance-*.log"))
    if "0.8.3" not in path.name  # that release does not log how many tokens a step has
]
SAVED = sorted((FIXTURES / "acceptance").glob("*-healthy-*.json"))
BENCHMARKS = [
    "vllm-serve.json",
    "vllm-serve-appended.json",
    "guidellm.benchmarks.json",
    "aiperf.server_metrics_export.json",
    "aiperf-per-request.profile_export.jsonl",
]


def written(content: str | bytes, folder: Path) -> Path:
    file = folder / "given"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def saved(recording: Recording, folder: Path) -> Path:
    """What `acceptance --json` writes of `recording`."""
    return written(to_json("acceptance", report_on(recording)), folder)


@pytest.mark.parametrize("source", [PAGE, *LOGS, *SAVED], ids=lambda path: path.stem)
def test_a_saved_report_holds_what_was_counted(source: Path, tmp_path: Path) -> None:
    first = read_acceptance_file(source)

    again = read_acceptance_file(saved(first, tmp_path))

    assert again == first
    assert again.counted.drafts > 0


def test_a_metrics_page_is_known() -> None:
    found = read_acceptance_file(PAGE)

    assert (found.source, found.where) == (SourceKind.METRICS, (str(PAGE),))
    assert found.counted == DraftCounters(286, 2002, 193, (113, 45, 18, 6, 5, 3, 3))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_a_log_is_known(log: Path) -> None:
    assert read_acceptance_file(log).source is SourceKind.LOG


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmarks_result_is_known(name: str) -> None:
    found = read_acceptance_file(FIXTURES / "bench" / name)

    assert found.source is SourceKind.BENCHMARK
    assert found.counted.drafts > 0


@pytest.mark.parametrize("prefix", ["[2026-11-29 10:00:00] ", "[rank0]: ", "[web-1] | "])
def test_a_log_whose_lines_begin_as_json_does_is_known(prefix: str, tmp_path: Path) -> None:
    log = FIXTURES / "logs" / "acceptance-0.32-cpu-dflash.log"
    lines = "".join(prefix + line for line in log.read_text().splitlines(keepends=True))

    found = read_acceptance_file(written(lines, tmp_path))

    assert found.counted == read_acceptance_file(log).counted


@pytest.mark.parametrize("content", [b"[1, 2]", b'{"a": 1}', b"[", b"{oops", b"[" * 100_000, b"{}", b'"text"', b"7"])
def test_json_of_another_kind_is_named(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as refused:
        read_acceptance_file(written(content, tmp_path))

    assert refused.value.exit_code in (2, 4)
    assert str(tmp_path) in refused.value.what


@pytest.mark.parametrize("content", [b"", b"\x00" * 1000, b"hello\n", bytes(range(256)) * 10])
def test_junk_is_no_log_with_drafts(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as refused:
        read_acceptance_file(written(content, tmp_path))

    assert refused.value.exit_code == 4


def test_a_report_of_another_command_is_named(tmp_path: Path) -> None:
    probe = {"command": "probe", "dspark_tool": "0.1.0", "verdict": {}, "result": {}}

    with pytest.raises(BadInput, match="but not one of acceptance"):
        read_acceptance_file(written(json.dumps(probe), tmp_path))


def test_a_saved_error_is_named(tmp_path: Path) -> None:
    error = {"dspark_tool": "0.1.0", "error": "no server answers", "next": "", "exit_code": 3}

    with pytest.raises(BadInput, match="holds an error of this tool, not a report: no server answers"):
        read_acceptance_file(written(json.dumps(error), tmp_path))


@pytest.mark.parametrize("path", ["/no/file", "/", "/dev/null", "/dev/zero", f"/{'x' * 300}"])
def test_what_is_no_file_is_named(path: str) -> None:
    with pytest.raises(BadInput, match=r"cannot be read|is no file"):
        read_acceptance_file(Path(path))


def test_a_document_that_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance_file, "LARGEST_DOCUMENT", 1 << 10)

    with pytest.raises(BadInput, match="larger than"):
        read_acceptance_file(PAGE)


def changed(place: str, value: Any) -> str:
    """A saved report with `value` at `place`, such as recording.parts.0.counted.drafts."""
    recording = read_acceptance_file(PAGE)
    document = json.loads(to_json("acceptance", report_on(recording)))
    *steps, last = (int(step) if step.isdigit() else step for step in place.split("."))
    held = document
    for step in steps:
        held = held[step]
    held[last] = value
    return json.dumps(document)


COUNTED, TRAFFIC = "recording.parts.0.counted", "recording.parts.0.traffic"
POINT = {"at": None, "seconds": 1.0, "counted": {"drafts": 1, "draft_tokens": 7, "accepted": 9, "accepted_at": [9]}}


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (f"{COUNTED}.drafts", 100, "more is accepted at a position"),
        (f"{COUNTED}.drafts", -1, "negative"),
        (f"{COUNTED}.drafts", 10**400, "absurdly large"),
        (f"{COUNTED}.accepted", 3000, "more tokens are accepted than drafted"),
        (f"{COUNTED}.accepted_at", [1] * 5000, "positions"),
        (f"{COUNTED}.born", float("nan"), "negative or absurdly large"),
        ("recording.seconds", float("inf"), "negative or absurdly large"),
        ("recording.seconds", -5.0, "negative"),
        (f"{TRAFFIC}.prefix_hits", 10**9, "more tokens are restored"),
        (f"{TRAFFIC}.preemptions", -3, "negative"),
        ("recording.trend", [POINT], "more is accepted at a position"),
    ],
)
def test_a_report_with_impossible_figures_was_changed(place: str, value: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(NotFit, match=f"was changed: .*{re.escape(what)}"):
        read_acceptance_file(written(changed(place, value), tmp_path))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("recording", None),
        ("recording.parts", 7),
        ("recording.parts.0.counted", []),
        (f"{COUNTED}.drafts", "many"),
        (f"{COUNTED}.drafts", 1.5),
        (f"{COUNTED}.accepted_at", {"0": 1}),
        ("recording.source", "rumour"),
        ("recording.where", "here"),
    ],
)
def test_a_report_of_another_shape_is_named(place: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="but not one of acceptance that can be read"):
        read_acceptance_file(written(changed(place, value), tmp_path))


def read_or_refused(file: Path) -> None:
    """Read and reported on without another error than the tool's own."""
    try:
        report = report_on(read_acceptance_file(file))
    except ToolError:
        return
    assert "NaN" not in to_json("acceptance", report)
    assert acceptance_csv(report)


fuzzed = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@fuzzed
@given(st.binary(max_size=300), st.sampled_from([b"", b"{", b"[", b"# TYPE vllm:", b"vllm:"]))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes, start: bytes) -> None:
    read_or_refused(written(start + content, tmp_path))


@fuzzed
@given(st.data())
def test_a_damaged_report_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(SAVED)).read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    patch = data.draw(st.binary(max_size=20) | st.sampled_from([b"1e999", b"NaN", b"-1", b"null", b'"', b"]"]))

    read_or_refused(written(whole[:start] + patch + whole[end:], tmp_path))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places in a JSON document, all of them."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, held in inner for place in leaves(held, (*path, key)))]


SAVED_REPORT = json.loads(SAVED[0].read_text())
odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        2**53,
        2**53 + 1,
        10**400,
        0.5,
        -0.0,
        float("nan"),
        float("inf"),
        "",
        "1",
        "x",
        [],
        [0],
        {},
        [[]],
    ]
)


@fuzzed
@given(st.sampled_from(leaves(SAVED_REPORT["recording"])), odd_values)
def test_any_value_of_a_report_may_be_odd(tmp_path: Path, place: tuple[Any, ...], odd: Any) -> None:
    document = json.loads(json.dumps(SAVED_REPORT))
    held, steps = document, ("recording", *place)
    for step in steps[:-1]:
        held = held[step]
    held[steps[-1]] = odd

    read_or_refused(written(json.dumps(document), tmp_path))
