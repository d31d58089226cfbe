"""What vLLM logs say of draft acceptance: recorded ones, counts that are known, and logs of any kind and size."""

import json
import re
import tracemalloc
from collections.abc import Iterator
from io import BytesIO, RawIOBase
from itertools import pairwise
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay, ToolError
from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind
from dspark_cli.facts.traffic import Traffic
from dspark_cli.facts.trend import MOST_POINTS
from dspark_cli.sources.acceptance_log import read_acceptance_log
from dspark_cli.sources.bounded_lines import LONGEST_LINE
from tests.paths import FIXTURES

LOGS = FIXTURES / "logs"
KNOWN = re.compile(r"# counted: drafts (\d+), drafted (\d+), accepted (\d+)(?:, at positions ([\d ]+))?")
FIGURES = (
    "Mean acceptance length: 1.50, Accepted throughput: 0.40 tokens/s, Drafted throughput: 2.40 tokens/s, "
    "Accepted: 4 tokens, Drafted: 24 tokens, Per-position acceptance rate: 0.375, 0.125, 0.000, "
    "Avg Draft acceptance rate: 16.7%"
)
COUNTED = DraftCounters(8, 24, 4, (3, 1, 0))
V0 = (
    "Speculative metrics: Draft acceptance rate: 0.678, System efficiency: 0.613, Number of speculative tokens: 3, "
    "Number of accepted tokens: 374, Number of draft tokens: 552, Number of emitted tokens: 451."
)
ARGS = "non-default args: {'model_tag': '/m', 'model': '/m', 'served_model_name': ['%s'], 'speculative_config': {}}"


def said(message: str, process: str = "APIServer pid=1", time: str = "11-29 15:04:22", file: str = "metrics.py") -> str:
    return f"({process}) INFO {time} [{file}:120] {message}"


def counts(process: str = "APIServer pid=1", time: str = "11-29 15:04:22") -> str:
    return said(f"SpecDecoding metrics: {FIGURES}", process, time)


def of_engine(engine: str, process: str = "APIServer pid=1", time: str = "11-29 15:04:22") -> str:
    return said(f"{engine}: Avg prompt throughput: 3.0 tokens/s, Avg generation", process, time, "loggers.py")


def reading(*lines: str) -> Recording:
    return read_acceptance_log(BytesIO("\n".join(lines).encode()), "the log")


def reading_of(fixture: str) -> Recording:
    with (LOGS / fixture).open("rb") as log:
        return read_acceptance_log(log, fixture)


def known_lines(release: str) -> Iterator[tuple[str, DraftCounters]]:
    """Lines that a release's own code printed, each with what had been counted."""
    lines = (LOGS / f"acceptance-{release}-known-counts.log").read_text().splitlines()
    for told, line in pairwise(lines):
        if counted := KNOWN.fullmatch(told):
            at = tuple(map(int, counted[4].split())) if counted[4] else ()
            yield line, DraftCounters(int(counted[1]), int(counted[2]), int(counted[3]), at)


def test_a_recorded_log_gives_the_engine_its_model_and_its_counts() -> None:
    recording = reading_of("acceptance-0.32-cpu-dflash.log")
    (part,) = recording.parts
    assert part == EnginePart(
        "acceptance-0.32-cpu-dflash.log",
        "tiny",
        "0",
        DraftCounters(3803, 26621, 2681, (1827, 573, 216, 53, 8, 4, 0)),
        Traffic(),
    )
    assert (recording.source, recording.seconds, len(recording.trend)) == (SourceKind.LOG, 250.0, 26)
    assert recording.exact
    assert recording.notes == ()


def test_the_trend_has_the_seconds_from_line_to_line_and_no_time_that_the_log_does_not_tell() -> None:
    trend = reading_of("acceptance-0.32-cpu-dflash.log").trend
    assert [point.seconds for point in trend] == [None, *[10.0] * 25]
    assert {point.at for point in trend} == {None}
    assert sum((point.counted for point in trend), NOTHING).accepted == 2681


@pytest.mark.parametrize(
    ("log", "model", "drafts", "exact"),
    [
        ("0.32-cpu-starts-and-stops.log", "/models/target", 286, True),
        ("0.33-gpu-starts-and-stops.log", "tiny", 1496, False),
        ("acceptance-0.26-gpu-dflash.log", "tiny", 2697, False),
    ],
)
def test_draft_steps_of_other_recorded_logs(log: str, model: str, drafts: int, exact: bool) -> None:
    recording = reading_of(log)
    assert (recording.models, recording.counted.drafts, recording.exact) == ((model,), drafts, exact)
    assert sum(recording.counted.accepted_at) == recording.counted.accepted


@pytest.mark.parametrize("release", ["0.8.5", "0.9.2", "0.10.2", "0.32.0"])
def test_known_counts_come_back_exactly_where_that_is_claimed_and_else_as_they_were_printed(release: str) -> None:
    claimed = 0
    for line, counted in known_lines(release):
        recording = reading(line)
        back = recording.counted
        assert (back.draft_tokens, back.accepted) == (counted.draft_tokens, counted.accepted)
        assert back.implausible() is None
        assert sum(back.accepted_at) == back.accepted
        for mine, theirs in zip(back.accepted_at, counted.accepted_at, strict=True):
            assert abs(mine / back.drafts - theirs / counted.drafts) <= 0.001
        assert abs(back.accepted / back.drafts - counted.accepted / counted.drafts) <= 0.01
        if recording.exact:
            claimed += 1
            assert back == counted
    assert claimed >= 5


def test_many_steps_with_drafts_of_full_length_have_their_number_known() -> None:
    counted_by_drafts = {
        counted.drafts: reading(line).counted.drafts
        for line, counted in known_lines("0.32.0")
        if counted.draft_tokens == counted.drafts * len(counted.accepted_at)
    }
    assert set(counted_by_drafts) >= {1496, 50_000}
    assert all(drafts == back for drafts, back in counted_by_drafts.items())


@pytest.mark.parametrize("release", ["0.6.3-v0", "0.8.5-v0"])
def test_cumulative_counts_are_differenced_and_a_step_back_is_a_new_start(release: str) -> None:
    totals = [counted for _, counted in known_lines(release)]
    recording = reading(*(line for line, _ in known_lines(release)))
    assert recording.counted == totals[2] + totals[4]
    assert [point.counted for point in recording.trend] == [
        totals[0],
        totals[1] - totals[0],
        totals[2] - totals[1],
        totals[3],
        totals[4] - totals[3],
    ]
    assert any("began anew once" in note for note in recording.notes)
    assert any("V0 also counts" in note for note in recording.notes)


def test_a_start_between_cumulative_counts_is_seen_even_where_they_do_not_step_back() -> None:
    start = "INFO 11-29 15:04:00 [llm_engine.py:241] Initializing a V0 LLM engine (v0.8.5) with config: model='/m', "
    recording = reading(
        f"INFO 11-29 15:03:00 [metrics.py:508] {V0}", start, f"INFO 11-29 15:05:00 metrics.py:508] {V0}"
    )
    assert recording.counted.drafts == 2 * 184
    assert any("began anew once" in note for note in recording.notes)


def test_the_oldest_lines_of_v1_need_the_number_of_speculative_tokens_from_the_start_of_the_server() -> None:
    lines = [line for line, _ in known_lines("0.8.3")]
    start = "INFO 11-29 15:04:00 [core.py:58] Initializing a V1 LLM engine (v0.8.3) with config: model='/m', " + (
        "speculative_config=SpeculativeConfig(method='ngram', num_spec_tokens=5), tokenizer='/m', served_model_name=m, "
    )
    recording = reading(start, *lines)
    assert recording.counted == sum((counted for _, counted in known_lines("0.8.3")), NOTHING)
    assert recording.models == ("m",)
    assert not recording.exact
    with pytest.raises(CannotSay, match="1925 drafted tokens"):
        reading(*lines)


def test_interleaved_engines_of_one_server_are_told_apart_by_the_line_before() -> None:
    a, b = "ApiServer_0 pid=1", "ApiServer_1 pid=2"
    recording = reading(
        of_engine("Engine 000", a),
        of_engine("Engine 001", b),
        counts(a),
        counts(b),
        of_engine("Engine 001", a),
        counts(a),
    )
    assert {part.engine: part.counted.drafts for part in recording.parts} == {"0": 8, "1": 16}
    assert {part.where for part in recording.parts if part.engine == "0"} == {"the log"}


def test_engines_that_are_printed_together_are_one_part() -> None:
    recording = reading(of_engine("4 Engines Aggregated"), counts())
    assert [part.engine for part in recording.parts] == ["4 aggregated"]
    assert any("together" in note for note in recording.notes)


def test_engines_in_the_same_second_are_one_point_of_the_trend() -> None:
    recording = reading(
        *(
            line
            for second in (22, 32)
            for n in "01"
            for line in (of_engine(f"Engine 00{n}"), counts(time=f"11-29 15:04:{second}"))
        )
    )
    assert [(point.seconds, point.counted.drafts) for point in recording.trend] == [(None, 16), (10.0, 16)]


def test_a_server_that_takes_over_from_another_adds_up_with_it() -> None:
    recording = reading(
        said(ARGS % "m"), counts(), counts(), said(ARGS % "m", "APIServer pid=2"), counts("APIServer pid=2")
    )
    assert recording.parts == (EnginePart("the log", "m", "0", COUNTED + COUNTED + COUNTED),)
    assert recording.notes == ("the server began anew once in the log; the counts of its runs are added up",)


def test_servers_that_count_at_the_same_time_are_different_replicas() -> None:
    first, second = (f"vllm-{n}  | {counts()}" for n in (1, 2))
    recording = reading(first, second, first, second)
    assert [part.where for part in recording.parts] == [
        "the log (vllm-1 APIServer pid=1)",
        "the log (vllm-2 APIServer pid=1)",
    ]
    assert {part.counted.drafts for part in recording.parts} == {16}


def test_every_server_has_the_model_that_it_named() -> None:
    recording = reading(
        said(ARGS % "one"),
        said(ARGS % "two", "APIServer pid=2"),
        counts(),
        counts("APIServer pid=2"),
        counts("A pid=3"),
    )
    assert [part.model for part in recording.parts] == ["one", "two"]


def test_a_model_name_is_short_and_printable() -> None:
    (model,) = reading(said(ARGS % ("\x07\x1b]8;;" + "x" * 5000)), counts()).models
    assert model.isprintable()
    assert len(model) <= 200


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ("12-31 23:59:55", "01-01 00:00:05", 10.0),
        ("02-28 23:59:55", "03-01 00:00:05", 10.0),
        ("02-29 23:59:55", "03-01 00:00:05", 10.0),
        ("02-28 23:59:55", "02-29 00:00:05", 10.0),
        ("2027-12-31 23:59:55", "2028-01-01 00:00:05", 10.0),
        ("11-29 15:04:22", "11-29 15:04:22", None),
        ("11-29 15:04:22", "11-29 15:04:21", None),
        ("11-29 15:04:22", "11-29 14:04:32", None),
        ("13-45 15:04:22", "11-29 14:04:32", None),
    ],
)
def test_the_span_survives_the_new_year_and_a_clock_set_back(before: str, after: str, seconds: float | None) -> None:
    recording = reading(counts(time=before), counts(time=after))
    assert recording.seconds == seconds
    assert all((point.seconds or 0) >= 0 for point in recording.trend)
    assert any("set back once" in note for note in recording.notes) == (after == "11-29 14:04:32" and before < "12")


def test_the_time_is_known_where_a_container_runtime_wrote_it_with_its_zone() -> None:
    trend = reading(
        f"2026-11-29T15:04:22.123456789Z {counts(time='11-29 16:04:22')}",
        f"2026-11-29T16:04:32.5+01:00 {counts(time='11-29 16:04:32')}",
    ).trend
    assert [point.at for point in trend] == pytest.approx([1795964662.123456, 1795964672.5])
    assert trend[1].seconds == pytest.approx(10.376544)


def test_lines_in_colour_as_json_and_at_the_end_of_a_progress_bar_count_too() -> None:
    coloured = (
        counts()
        .replace("INFO", "\x1b[32mINFO\x1b[0m")
        .replace("(APIServer pid=1)", "\x1b[0;36m(APIServer pid=1)\x1b[0;0m")
    )
    as_json = json.dumps(
        {
            "asctime": "2026-11-29 15:04:32,017",
            "levelname": "INFO",
            "name": "vllm.v1.spec_decode.metrics",
            "processName": "MainProcess",
            "process": 7,
            "message": f"SpecDecoding metrics: {FIGURES}",
        }
    )
    recording = reading(coloured, as_json, f"Loading:  50%|###  | 1/2\r{counts(time='11-29 15:04:42')}")
    assert recording.counted.drafts == 3 * COUNTED.drafts
    assert recording.seconds == 20.0


@pytest.mark.parametrize(
    ("figure", "instead"),
    [
        ("length: 1.50", "length: 1.51"),
        ("0.375, 0.125", "0.125, 0.375"),
        ("0.375, 0.125", "0.376, 0.125"),
        ("Accepted: 4", "Accepted: 5"),
        ("Accepted: 4", "Accepted: 40"),
        ("Drafted: 24", "Drafted: 25"),
        ("rate: 16.7%", "rate: nan%"),
        ("length: 1.50", "length: inf"),
        ("0.125, 0.000", "nan, 0.000"),
    ],
)
def test_a_line_that_contradicts_itself_is_left_out_and_counted(figure: str, instead: str) -> None:
    recording = reading(counts(), counts().replace(figure, instead))
    assert recording.counted == COUNTED
    assert recording.notes == ("left out: 1 line on drafts with figures that contradict each other",)


def test_a_line_cut_short_is_left_out_and_counted() -> None:
    recording = reading(counts(), counts()[:150], counts() + counts())
    assert recording.counted == COUNTED
    assert recording.notes == ("left out: 2 lines on drafts, cut short or mixed with other text",)


def test_what_a_prompt_quotes_is_no_count() -> None:
    quoted = [
        said(f"Received request cmpl-1: prompt: '{counts()}'", file="logger.py"),
        said(f"SpecDecoding metrics: {FIGURES}", file="logger.py"),
        f'"{counts()}"',
    ]
    assert reading(counts(), *quoted).counted == COUNTED


def test_a_line_of_nothing_drafted_adds_nothing() -> None:
    nothing = said(
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00 tokens/s, Drafted throughput: "
        "0.00 tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, nan, nan, "
        "Avg Draft acceptance rate: nan%"
    )
    recording = reading(counts(), nothing)
    assert (recording.counted, recording.notes) == (COUNTED, ())


def test_denoising_steps_of_a_diffusion_model_are_no_drafts() -> None:
    line = said(
        "DiffusionDecoding metrics: Committed token throughput: 5.00 tokens/s, Mean denoising steps per canvas: 4.00, "
        "Mean tokens committed per denoising step: 8.00, Committed: 64 tokens, Denoising steps: 8, "
        "Canvas positions evaluated: 256"
    )
    assert reading(counts(), line).notes == ("left out: what 1 line on denoising count; these are no drafts",)
    with pytest.raises(CannotSay, match="diffusion"):
        reading(line)


def test_a_change_of_the_number_of_positions_is_noted() -> None:
    other = counts().replace("0.125, 0.000", "0.125").replace("Drafted: 24", "Drafted: 16").replace("16.7%", "25.0%")
    assert any("(2, 3)" in note for note in reading(counts(), other).notes)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("0.26-gpu-starts.log", "speculates, but no line on its drafts"),
        ("0.32-cpu-two-engines.log", "without speculative decoding"),
        ("0.32-cpu-unknown-argument.log", "no line of vLLM's on drafts"),
    ],
)
def test_a_log_without_counts_is_refused_with_what_it_shows_of_speculation(log: str, what: str) -> None:
    with pytest.raises(CannotSay, match=what) as refusal:
        reading_of(log)
    assert refusal.value.next_step


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(CannotSay):
        reading()


class Unreadable(RawIOBase):
    def readline(self, size: int | None = -1, /) -> bytes:
        raise OSError(5, "Input/output error")


def test_a_log_that_cannot_be_read_is_bad_input() -> None:
    with pytest.raises(BadInput, match="Input/output error"):
        read_acceptance_log(cast(BinaryIO, Unreadable()), "the log")


PIECES = st.sampled_from(
    [
        *(
            line.encode()
            for line in (counts(), of_engine("Engine 001"), said(ARGS % "m"), f"INFO 11-29 1:1:1 [m.py:1] {V0}")
        ),
        b"\n",
        b"{",
        b"INFO 11-29 15:04:22 [metrics.py:1] SpecDecoding metrics: ",
        b"Accepted: 99999999999 tokens, Drafted: 99999999999 tokens",
        b"\xff\x00\x1b[",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=60), max_size=30))
def test_any_bytes_give_a_recording_or_a_refusal(pieces: list[bytes]) -> None:
    try:
        recording = read_acceptance_log(BytesIO(b"".join(pieces)), "the log")
    except ToolError:
        return
    assert recording.counted.implausible() is None
    assert sum((point.counted for point in recording.trend), NOTHING) == recording.counted


@given(st.text(alphabet="0123456789., anif%:", max_size=80), st.integers(0, 250), st.integers(0, 40))
def test_a_damaged_line_is_taken_as_whole_numbers_that_fit_or_left_out(noise: str, at: int, length: int) -> None:
    line = counts()
    damaged = line[:at] + noise.replace("\n", "") + line[at + length :]
    recording = reading(line, damaged)
    assert recording.counted.implausible() is None
    assert sum(recording.counted.accepted_at) == recording.counted.accepted


GARBAGE = st.binary(max_size=80).map(lambda bytes_: bytes_.replace(b"metrics: ", b"").replace(b"\n", b" "))


@given(st.lists(st.sampled_from(list(known_lines("0.32.0"))) | GARBAGE, min_size=1, max_size=20))
def test_totals_are_right_whatever_is_between_the_lines(told: list[tuple[str, DraftCounters] | bytes]) -> None:
    log = b"\n".join(each if isinstance(each, bytes) else each[0].encode() for each in told)
    expected = sum((each[1] for each in told if not isinstance(each, bytes)), NOTHING)
    if expected == NOTHING:
        with pytest.raises(CannotSay):
            read_acceptance_log(BytesIO(log), "the log")
        return
    counted = read_acceptance_log(BytesIO(log), "the log").counted
    assert (counted.draft_tokens, counted.accepted) == (expected.draft_tokens, expected.accepted)


@given(st.integers(1, 12), st.integers(1, 3000), st.data())
def test_counts_are_found_again_from_what_is_printed_of_them(positions: int, drafts: int, data: st.DataObject) -> None:
    at: list[int] = []
    for _ in range(positions):
        at.append(data.draw(st.integers(0, at[-1] if at else drafts)))
    accepted, drafted = sum(at), data.draw(st.integers(max(sum(at), 1), max(drafts * positions, 1)))
    line = said(
        f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
        "Accepted throughput: 1.00 tokens/s, Drafted throughput: 1.00 tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {', '.join(f'{each / drafts:.3f}' for each in at)}, "
        f"Avg Draft acceptance rate: {accepted / drafted * 100:.1f}%"
    )
    recording = reading(line)
    assert recording.counted.accepted == accepted
    assert recording.counted.implausible() is None
    if recording.exact:
        assert recording.counted == DraftCounters(drafts, drafted, accepted, tuple(at))


class Endless(RawIOBase):
    """Gives `lines` over and over, until `size` bytes were read."""

    def __init__(self, lines: list[bytes], size: int) -> None:
        self._lines, self._left, self._next = lines, size, 0

    def readline(self, size: int | None = -1, /) -> bytes:
        if self._left <= 0:
            return b""
        line = self._lines[self._next % len(self._lines)][:size]
        self._next += 1
        self._left -= len(line)
        return line


def peak_memory(log: RawIOBase) -> tuple[Recording, int]:
    tracemalloc.start()
    try:
        recording = read_acceptance_log(cast(BinaryIO, log), "the log")
        return recording, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_log_of_many_processes_is_read_in_constant_memory() -> None:
    lines = [f"{counts(f'APIServer pid={10_000 + pid}')}\n".encode() for pid in range(6000)]
    recording, peak = peak_memory(Endless(lines, 6000 * len(lines[0])))
    assert recording.counted.drafts == 6000 * COUNTED.drafts
    assert len(recording.trend) <= MOST_POINTS
    assert peak < 4_000_000


def test_200_megabytes_of_other_lines_are_passed_over_in_constant_memory() -> None:
    line = b'INFO:     127.0.0.1:46910 - "POST /v1/completions HTTP/1.1" 200 OK' + b" " * 400 + b"\n"
    recording, peak = peak_memory(Endless([*[line] * 5000, counts().encode() + b"\n"], 200_000_000))
    assert recording.counted.drafts % 8 == 0
    assert peak < 1_000_000


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    head = BytesIO(
        counts().encode() + b"\n" + b"x" * (50 * LONGEST_LINE) + counts().encode() + b"\n" + counts().encode()
    )
    tracemalloc.start()
    recording = read_acceptance_log(head, "the log")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert recording.counted == COUNTED + COUNTED
    assert peak < 10 * LONGEST_LINE
