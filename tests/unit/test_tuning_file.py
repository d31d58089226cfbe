"""The results file of a tune: what is written is there after a crash, and nothing else is touched."""

import contextlib
import dataclasses
import errno
import io
import json
import re
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.facts.measured_profile import BestCount, MeasuredProfile
from dspark_cli.facts.tuning import Candidate, FailedCandidate, Load
from dspark_cli.sources.tuning_file import TuningFile, open_tuning_file, read_profile
from tests.cheap_tune import QUESTION
from tests.measurements import measurement

PROFILE = MeasuredProfile(
    "target", "drafter", "vllm 0", "none", "2026-11-30", (BestCount(1, 3, 90.0, 60.0, True),), ((1, 1024, 3),)
)


def written(path: Path) -> bytes:
    """A file of three measurements, a failure and a profile."""
    with open_tuning_file(path, QUESTION) as file:
        for tokens in (7, 0, 1):
            file.add(measurement(tokens))
        file.add_failure(FailedCandidate(Candidate(4), 'it\ndied \u2028 of "quotes"', "see its log"))
        file.add_profile(PROFILE)
    return path.read_bytes()


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    written(tmp_path / "r.jsonl")

    with open_tuning_file(tmp_path / "r.jsonl", QUESTION) as file:
        assert list(file.measurements.values()) == [measurement(tokens) for tokens in (7, 0, 1)]
        assert not file.cut_off
        file.add_profile(PROFILE)
    assert (tmp_path / "r.jsonl").read_bytes().count(b'"profile"') == 1
    assert read_profile(tmp_path / "r.jsonl") == PROFILE


@settings(max_examples=60)
@given(st.data())
def test_a_file_cut_anywhere_keeps_its_whole_lines_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.jsonl"
    content = written(path)
    end = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:end])
    whole = content[: content[:end].rfind(b"\n") + 1]

    with open_tuning_file(path, QUESTION) as file:
        kept = len(file.measurements)
        file.add(measurement(5))

    lines = path.read_bytes().splitlines()
    assert kept == whole.count(b'"measured"')
    assert path.read_bytes().startswith(whole)
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert json.loads(lines[-1])["measured"]["candidate"]["tokens"] == 5


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=200))
def test_a_file_of_something_else_is_refused_and_left_alone(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("other") / "r.jsonl"
    if b'{"dspark_tool_tune": 1,'.startswith(content):
        return
    path.write_bytes(content)

    with pytest.raises(BadInput, match="not the results file"), open_tuning_file(path, QUESTION):
        pass

    assert path.read_bytes() == content


@settings(max_examples=80)
@given(st.data())
def test_a_damaged_line_is_named_or_read_as_something_valid(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "r.jsonl"
    content = bytearray(written(path))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)

    with contextlib.suppress(BadInput):
        read_profile(path)
    with contextlib.suppress(BadInput), open_tuning_file(path, QUESTION) as file:
        assert all(each.seconds > 0 for each in file.measurements.values())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"drafter": "other"}, "drafter"),
        ({"vllm": "vllm 1"}, "vllm"),
        ({"device": "8 x H200"}, "device"),
        ({"vllm_args": ("--enforce-eager",)}, "vllm_args"),
        ({"also": "attention_backend"}, "also"),
        ({"load": Load("builtin", 10, 64, 32, 0)}, "load"),
    ],
)
def test_another_question_is_refused_with_what_differs(tmp_path: Path, change: dict[str, object], named: str) -> None:
    before = written(tmp_path / "r.jsonl")
    other = dataclasses.replace(QUESTION, **change)  # type: ignore[arg-type]

    with (
        pytest.raises(BadInput, match=f"another question: its {named} is") as refused,
        open_tuning_file(tmp_path / "r.jsonl", other),
    ):
        pass

    assert "--results" in refused.value.next_step
    assert (tmp_path / "r.jsonl").read_bytes() == before


def test_two_tunes_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with (
        open_tuning_file(path, QUESTION),
        pytest.raises(NotFit, match="another tune"),
        open_tuning_file(path, QUESTION),
    ):
        pass
    with open_tuning_file(path, QUESTION):
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [("startup_s", "NaN"), ("startup_s", "Infinity"), ("startup_s", '"slow"'), ("ttft_s", "-1.0"), ("tokens", "-7")],
)
def test_a_figure_that_can_be_none_is_refused(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "r.jsonl"
    text = written(path).decode()
    damaged = re.sub(rf'"{name}": [0-9.]+', f'"{name}": {value}', text, count=1)
    assert damaged != text
    path.write_text(damaged)

    with pytest.raises(BadInput, match=r"line 2 of .* is damaged"), open_tuning_file(path, QUESTION):
        pass


@pytest.mark.parametrize("kind", ["folder", "absent", "empty", "unfinished"])
def test_no_profile_says_what_to_do(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "r.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "unfinished":
        with open_tuning_file(path, QUESTION) as file:
            file.add(measurement(7))

    with pytest.raises(BadInput) as refused:
        read_profile(path)

    assert refused.value.next_step


def test_a_device_is_no_results_file() -> None:
    with pytest.raises(BadInput, match="is no file"), open_tuning_file(Path("/dev/null"), QUESTION):
        pass


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(NotFit, match="cannot be written"), open_tuning_file(Path("/proc/no/r.jsonl"), QUESTION):
        pass


class FullDisk(io.FileIO):
    """Takes so many bytes more, and no other."""

    room = 1 << 30

    def write(self, data: Buffer, /) -> int:
        given = memoryview(data)
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = super().write(given[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_leaves_no_half_line(tmp_path: Path, room: int) -> None:
    before = written(tmp_path / "r.jsonl")
    with FullDisk(tmp_path / "r.jsonl", "r+") as disk:
        file = TuningFile(tmp_path / "r.jsonl", cast(BinaryIO, disk), QUESTION)
        disk.room = room
        with pytest.raises(NotFit, match="No space left"):
            file.add(measurement(5))
        disk.room = 1 << 30
        file.add(measurement(6))

    lines = (tmp_path / "r.jsonl").read_bytes().removeprefix(before).splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["measured"]["candidate"]["tokens"] == 6


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("tokens", -5),
        ("tokens", 10**30),
        ("concurrency", 0),
        ("goodput", -1.0),
        ("goodput_without_speculation", -1.0),
    ],
)
def test_a_profile_that_nobody_can_have_measured_is_damaged(tmp_path: Path, part: str, value: float) -> None:
    path = tmp_path / "r.jsonl"
    *lines, profile = written(path).splitlines()
    document = json.loads(profile)
    document["profile"]["best"][0][part] = value
    path.write_bytes(b"\n".join([*lines, json.dumps(document).encode(), b""]))

    with pytest.raises(BadInput, match=r"line 6 of .* is damaged"):
        read_profile(path)


@pytest.mark.parametrize("entry", [[0, 8, 3], [9, 8, 3], [1, 8, -3], [1, 8, 10**30]])
def test_so_is_one_with_an_impossible_schedule(tmp_path: Path, entry: list[int]) -> None:
    path = tmp_path / "r.jsonl"
    *lines, profile = written(path).splitlines()
    document = json.loads(profile)
    document["profile"]["schedule"] = [entry]
    path.write_bytes(b"\n".join([*lines, json.dumps(document).encode(), b""]))

    with pytest.raises(BadInput, match=r"line 6 of .* is damaged"):
        read_profile(path)
