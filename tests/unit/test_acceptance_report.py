"""How a report on draft acceptance is shown: on a terminal, as CSV, as a page, live."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind, TrendPoint, counted_in
from dspark_cli.facts.traffic import Traffic
from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.profiling.acceptance_report import AcceptanceReport, DraftPrice, ReplicaAcceptance
from dspark_cli.report.acceptance import show_acceptance
from dspark_cli.report.acceptance_csv import COLUMNS, acceptance_csv, inert
from dspark_cli.report.acceptance_page import acceptance_page
from dspark_cli.report.acceptance_summary import markdown_summary
from dspark_cli.report.acceptance_watch import WatchView, watch_line, watch_screen
from dspark_cli.report.charts import course_of, terminal_chart
from tests.paths import FIXTURES

URL = "http://127.0.0.1:8000"
PUBLISHED = DraftCounters(10_270, 71_890, 19_871, (7506, 4887, 3084, 1925, 1236, 765, 468))
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "[red]x[/]",
    r"$\frac{1}{0}$",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b[0m\r\nforged: 100.0%\x07\x00",
    "\ud800 half a pair",
    "x" * 10_000,
    "```\n# forged heading",
)
COLLAPSE = Finding(
    "acceptance-collapsed",
    Severity.ERROR,
    "Position 0 is accepted in 39.5% of 286 draft steps, and 0.1% with prefix hits.",
    {"drafts": 286, "rate": 0.395104, "prefix caching": True, "since": None, "model": "tiny"},
    "reset the prefix cache, then measure again: --interval 30",
    fixed_since="0.33.0",
)


def recorded() -> DraftCounters:
    """The counters of a real server on the CPU."""
    page = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_text()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    counts = {(s.name, s.labels.get("position", "")): int(s.value) for s in samples if "spec_decode" in s.name}
    total = "vllm:spec_decode_num_{}_total".format
    at = tuple(counts[total("accepted_tokens_per_pos"), str(position)] for position in range(7))
    drafts, tokens, accepted = (counts[total(name), ""] for name in ("drafts", "draft_tokens", "accepted_tokens"))
    return DraftCounters(drafts, tokens, accepted, at)


RECORDED = recorded()


def part_of(counted: DraftCounters = RECORDED, model: str = "tiny", engine: str = "0", where: str = URL) -> EnginePart:
    return EnginePart(where, model, engine, counted, Traffic(4569, 479, 4569, 0, 0, 0, 0, 24))


def recording_of(*parts: EnginePart, seconds: float | None = None) -> Recording:
    where = tuple(dict.fromkeys(part.where for part in parts))
    return Recording(SourceKind.METRICS, where, seconds, parts)


def profile_of(parts: Sequence[EnginePart]) -> AcceptanceProfile | None:
    counted = counted_in(parts)
    return AcceptanceProfile.of(counted) if counted.drafts else None


def report_of(recording: Recording, *findings: Finding, not_checked: Sequence[NotChecked] = ()) -> AcceptanceReport:
    profile, traffic = profile_of(recording.parts), recording.traffic
    replicas = tuple(
        ReplicaAcceptance(part.where, part.model, part.engine, profile_of([part]), part.traffic.prefix_hit_rate)
        for part in recording.parts
    )
    return AcceptanceReport(
        recording,
        ", ".join(recording.models),
        profile,
        profile_of(recording.since_start),
        traffic.prefix_hit_rate,
        traffic.external_hit_rate,
        traffic.preemptions,
        price_of(profile) if profile else None,
        replicas if len(replicas) > 1 else (),
        findings,
        tuple(not_checked),
    )


def price_of(profile: AcceptanceProfile) -> DraftPrice:
    unused = profile.draft_tokens - profile.accepted
    return DraftPrice(profile.draft_tokens, profile.accepted, unused, 1000 / profile.mean_acceptance_length)


def trend_of(count: int, began: float | None = 1_795_964_600.0) -> tuple[TrendPoint, ...]:
    """Stretches of 10 s in which the acceptance falls; one of them without a draft step."""
    points = []
    for i in range(count):
        first = 700 - 400 * i // max(count, 1)
        at = (first, first // 2, first // 4) if i != 1 else (0, 0, 0)
        counted = DraftCounters(1000 if i != 1 else 0, 3000 if i != 1 else 0, sum(at), at)
        traffic = Traffic(prefix_queries=1000, prefix_hits=min(10 * i, 1000))
        points.append(TrendPoint(None if began is None else began + 10 * (i + 1), 10.0, counted, traffic))
    return tuple(points)


def windowed() -> AcceptanceReport:
    """A window beside the counts since start."""
    recording = recording_of(part_of(), seconds=30.0)
    return report_of(replace(recording, since_start=(part_of(PUBLISHED),)), COLLAPSE)


def fleet() -> AcceptanceReport:
    """Three engines of two servers, one of them idle, and a trend."""
    idle = part_of(DraftCounters(0, 0, 0, ()), where="http://10.0.0.7:8000")
    recording = recording_of(part_of(), part_of(PUBLISHED, engine="1"), idle, seconds=7512.0)
    return report_of(replace(recording, trend=trend_of(300)), COLLAPSE, not_checked=[NotChecked("eviction", "no log")])


def hostile(name: str) -> AcceptanceReport:
    """The name wherever a name can stand."""
    parts = (part_of(model=name, engine=name, where=name), part_of(PUBLISHED, model=name + "b", where=name))
    finding = Finding(name, Severity.ERROR, name, {name: name}, name, name, name)
    recording = replace(recording_of(*parts), notes=(name,), trend=trend_of(5))
    return report_of(recording, finding, not_checked=[NotChecked(name, name)])


def one_engine() -> AcceptanceReport:
    return report_of(recording_of(part_of(PUBLISHED)))


def totals_only() -> AcceptanceReport:
    """What a benchmark tells: no positions, nothing of the traffic."""
    part = EnginePart("bench.json", "tiny", "0", DraftCounters(84_278, 589_946, 239_307, ()))
    return report_of(Recording(SourceKind.BENCHMARK, ("bench.json",), None, (part,)))


def idle() -> AcceptanceReport:
    return report_of(recording_of(part_of(DraftCounters(0, 0, 0, ())), seconds=30.0))


EVERY_KIND = (one_engine, windowed, fleet, totals_only, idle)


def shown(report: AcceptanceReport, capsys: pytest.CaptureFixture[str]) -> str:
    show_acceptance(report)
    return capsys.readouterr().out


@pytest.fixture
def width(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    columns = int(getattr(request, "param", 80))
    monkeypatch.setenv("COLUMNS", str(columns))
    return columns


def row_of(position: int, text: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if re.match(rf" +{position} ", line))


# The terminal


@pytest.mark.usefixtures("width")
def test_published_profile_is_shown_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(one_engine(), capsys)

    assert text.startswith("Draft acceptance of tiny engine 0, since server start\nmetrics of http://127.0.0.1:8000\n")
    assert row_of(0, text)[:6] == ["0", "7,506", "73.1%", "72.2%", "-", "73.9%"]
    assert row_of(6, text)[:3] == ["6", "468", "4.6%"]
    assert re.search(r"mean acceptance length +2.93\n", text)
    assert re.search(r"draft acceptance rate +27.6%\n", text)
    assert "71,890 tokens drafted: 19,871 used, 52,019 unused" in text
    assert "341 decode steps per 1,000 tokens" in text


@pytest.mark.parametrize("width", [60, 80, 120], indirect=True)
@pytest.mark.parametrize("report", EVERY_KIND)
def test_no_line_is_wider_than_the_terminal(report: object, width: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(report)

    text = shown(report(), capsys)

    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(("width", "has_bars"), [(60, False), (77, False), (78, True), (120, True)], indirect=["width"])
@pytest.mark.usefixtures("width")
def test_bars_appear_where_they_have_room(has_bars: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert ("█" in shown(one_engine(), capsys)) == has_bars


@pytest.mark.parametrize("width", [34, 44, 60, 80], indirect=True)
@pytest.mark.usefixtures("width")
def test_no_figure_is_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    many = DraftCounters(10**12, 7 * 10**12, 12 * 10**11, (9 * 10**11, 3 * 10**11))

    text = shown(report_of(recording_of(part_of(many))), capsys)

    assert "90.0%" in row_of(0, text)
    assert "…" not in text


@pytest.mark.usefixtures("width")
def test_window_stands_beside_the_counts_since_start(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(windowed(), capsys)

    assert "over 30.0 s" in text
    first = row_of(0, text)
    assert (first[1], first[2], first[-1]) == ("113", "39.5%", "73.1%")
    assert re.search(r"mean acceptance length +1.67 +2.93\n", text)


@pytest.mark.usefixtures("width")
def test_what_is_not_known_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(totals_only(), capsys)

    assert "the source tells totals only, not positions" in text
    assert "over the whole benchmark" in text
    assert re.search(r"mean acceptance length +3.84\n", text)
    for unknown in ("interval", "prefix", "external", "preemptions", "position 0"):
        assert unknown not in text


@pytest.mark.usefixtures("width")
def test_span_without_a_draft_step_is_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(idle(), capsys)

    assert "no draft step was counted over 30.0 s" in text
    assert "mean acceptance length" not in text
    assert re.search(r"prefix hit rate +0.0%\n", text)


@pytest.mark.usefixtures("width")
def test_idle_window_shows_what_was_counted_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    recording = replace(idle().recording, since_start=(part_of(PUBLISHED),))

    text = shown(report_of(recording), capsys)

    assert "since server start (10,270 draft steps)" in text
    assert "73.1%" in row_of(0, text)


@pytest.mark.usefixtures("width")
def test_fewer_tokens_drafted_than_positions_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    counted = DraftCounters(100, 450, 120, (60, 30, 20, 10, 0, 0, 0))

    assert re.search(r"drafted a step +4.5 of 7\n", shown(report_of(recording_of(part_of(counted))), capsys))


@pytest.mark.usefixtures("width")
def test_each_engine_has_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(fleet(), capsys)

    assert re.search(r"127.0.0.1:8000 +0 +286 +1.67 +1.54 - 1.81 +39.5% +0.0%\n", text)
    assert re.search(r"127.0.0.1:8000 +1 +10,270 +2.93 +2.90 - 2.97 +73.1% +0.0%\n", text)
    assert re.search(r"10.0.0.7:8000 +0 +0 +- +- +- +0.0%\n", text)


@pytest.mark.parametrize(
    ("width", "points", "drawn"), [(80, 3, False), (80, 4, True), (50, 9, False)], indirect=["width"]
)
@pytest.mark.usefixtures("width")
def test_course_is_drawn_from_three_stretches_with_drafts(
    points: int, drawn: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = replace(recording_of(part_of()), trend=trend_of(points))

    assert ("mean acceptance length over time" in shown(report_of(recording), capsys)) == drawn


@pytest.mark.usefixtures("width")
def test_notes_tell_of_restarts_and_rounding(capsys: pytest.CaptureFixture[str]) -> None:
    recording = recording_of(replace(part_of(), restarted=True), seconds=30.0)

    show_acceptance(report_of(replace(recording, exact=False, notes=("one scrape failed",))))

    said = capsys.readouterr().err
    assert "restarted in between" in said
    assert "rounded rates" in said
    assert "one scrape failed" in said


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_names_neither_drive_the_terminal_nor_flood_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    finding_apart = replace(hostile(name), findings=(), not_checked=())

    text = shown(finding_apart, capsys)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert len(text.splitlines()) < 80
    text.encode()


@pytest.mark.usefixtures("width")
def test_markup_in_a_name_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Draft acceptance of [red]x[/] engine" in shown(report_of(recording_of(part_of(model="[red]x[/]"))), capsys)


@pytest.mark.usefixtures("width")
def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    colored = re.compile(r"\x1b\[[0-9;]*(3|4|9|10)[0-7]")

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colored.search(shown(fleet(), capsys))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colored.search(shown(fleet(), capsys))


# Trends


def test_long_trend_is_drawn_in_few_stretches_that_hold_all_counts() -> None:
    trend = trend_of(1001)

    course = course_of(trend, 80)

    assert len(course.points) == 80
    assert sum(point.counted.accepted for point in course.points) == sum(point.counted.accepted for point in trend)
    assert course.x[-1] == pytest.approx(10_010 / 60)
    assert course.unit == "min"


@pytest.mark.parametrize("at", [None, float("nan"), float("inf"), 1e300, -1e300, 0.0])
def test_times_that_no_calendar_has_are_drawn_all_the_same(at: float | None) -> None:
    trend = tuple(replace(point, at=at) for point in trend_of(9))
    report = report_of(replace(recording_of(part_of()), trend=trend))

    assert terminal_chart(course_of(trend, 80), 80, 8)
    assert "Over time" in acceptance_page(report)


def test_steady_course_is_drawn() -> None:
    steady = tuple(replace(point, counted=PUBLISHED) for point in trend_of(9))

    chart = terminal_chart(course_of(steady, 80), 80, 8)

    assert chart
    assert len(chart.plain.splitlines()) == 8


# CSV


def rows_of(report: AcceptanceReport) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(acceptance_csv(report))))


def test_csv_has_a_row_a_position_and_one_of_totals() -> None:
    rows = rows_of(one_engine())

    assert [row["position"] for row in rows] == ["all", *map(str, range(7))]
    assert [int(row["accepted"]) for row in rows] == [19_871, *PUBLISHED.accepted_at]
    assert {row["scope"] for row in rows} == {"all"}
    assert float(rows[0]["mean_acceptance_length"]) == pytest.approx(2.934859, abs=1e-6)
    assert float(rows[2]["conditional_rate"]) == pytest.approx(4887 / 7506, abs=1e-6)


def test_csv_has_every_scope() -> None:
    window, engines = rows_of(windowed()), rows_of(fleet())

    assert {(row["scope"], row["seconds"]) for row in window} == {("all", "30.0"), ("since_start", "")}
    replicas = [row for row in engines if row["scope"] == "replica" and row["position"] == "all"]
    assert [(row["where"], row["engine"], row["drafts"]) for row in replicas] == [
        (URL, "0", "286"),
        (URL, "1", "10270"),
        ("http://10.0.0.7:8000", "0", "0"),
    ]


def test_csv_header_is_stable() -> None:
    for kind in EVERY_KIND:
        assert acceptance_csv(kind()).splitlines()[0] == ",".join(COLUMNS)
    assert COLUMNS[:8] == ("scope", "source", "where", "model", "engine", "seconds", "position", "drafts")


def test_csv_leaves_what_is_not_known_empty() -> None:
    (row,) = rows_of(totals_only())

    assert (row["length_low"], row["prefix_hit_rate"], row["preemptions"]) == ("", "", "")


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_csv_of_hostile_names_is_a_row_a_line_and_no_formula(name: str) -> None:
    text = acceptance_csv(hostile(name))

    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == len(text.splitlines())
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]


@given(st.text(st.characters(codec=None)))
def test_no_text_begins_a_formula(text: str) -> None:
    cell = inert(text)

    assert not cell.lstrip().startswith(("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"))
    assert cell.isprintable()


# The page


class PageReader(HTMLParser):
    """Collects the tags, the attributes and the open tags of a page."""

    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.left_open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.left_open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.left_open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_page_is_one_whole_file_that_asks_for_nothing(kind: object) -> None:
    assert callable(kind)

    page = acceptance_page(kind())

    read = PageReader(page)
    assert not read.left_open
    assert not read.tags & {"script", "link", "img", "iframe", "object", "form", "a", "base"}
    addresses = [value for name, value in read.attributes if name in ("href", "xlink:href", "src")]
    assert all(address and address.startswith("#") for address in addresses)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert len(page.encode()) < 300_000


def test_page_has_the_figures_and_the_findings() -> None:
    page = acceptance_page(fleet())

    words = " ".join(PageReader(page).words)
    for expected in ("72.2%", "2.90", "acceptance-collapsed", "0.395104", "Next:", "Fixed since vLLM 0.33.0", "no log"):
        assert expected in words
    assert page.count("<svg") == 2
    assert "2026-11-29" in words


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_figures_are_well_formed_and_share_no_id(kind: object) -> None:
    assert callable(kind)
    page = acceptance_page(kind())

    figures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]

    ids = [element.get("id") for figure in figures for element in figure.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'href="#([^"]+)"', page))
    assert targets <= set(ids)


def test_same_report_gives_the_same_page_whatever_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    page = acceptance_page(fleet())
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "path")
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "red")

    assert acceptance_page(fleet()) == page
    assert matplotlib.rcParams["axes.facecolor"] == "red"


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_names_are_text_on_the_page(name: str) -> None:
    page = acceptance_page(hostile(name))

    read = PageReader(page)
    assert not read.left_open
    assert "script" not in read.tags
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", page)
    assert len(page.encode()) < 300_000


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_text_for_a_bug_report_keeps_names_in_code_blocks(name: str) -> None:
    lines = iter(markdown_summary(hostile(name)).splitlines())

    outside = []
    for line in lines:
        fence = re.match(r"(`{3,})text$", line)
        if fence:
            assert fence[1] in lines, "the code block ends"
        else:
            outside.append(line)
    assert all(re.fullmatch(r"[|] [-0-9a-z%,.: |]+|- [-0-9a-z%,.:;() ]+|", line) for line in outside)


# The live view


def drawn(report: AcceptanceReport, width: int, height: int) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, force_terminal=True, color_system=None, markup=False)
    console.print(watch_screen(report, width, height))
    return output.getvalue().rstrip("\n").splitlines()


@pytest.mark.parametrize(("width", "height"), [(200, 60), (120, 40), (80, 24), (60, 15), (40, 10), (30, 8), (80, 4)])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_live_view_is_never_larger_than_the_screen(kind: object, width: int, height: int) -> None:
    assert callable(kind)
    report = kind()
    report = replace(report, findings=(COLLAPSE,) * 20, recording=replace(report.recording, trend=trend_of(500)))

    lines = drawn(report, width, height)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_live_view_shows_the_last_stretch_beside_all() -> None:
    report = report_of(replace(recording_of(part_of(PUBLISHED), seconds=300.0), trend=trend_of(30)), COLLAPSE)

    lines = drawn(report, 80, 24)

    assert row_of(0, "\n".join(lines))[:6] == ["0", "73.1%", "72.2%", "-", "73.9%", "31.4%"]
    assert lines[1].startswith("in all: 10,270 drafts, length 2.93 (2.90 - 2.97)")
    assert lines[2].startswith("last 10 s: 1,000 drafts, length 1.55")
    assert "error: acceptance-collapsed" in lines


def test_live_view_counts_positions_that_have_no_room() -> None:
    deep = DraftCounters(100, 6400, 640, (10,) * 64)

    lines = drawn(report_of(recording_of(part_of(deep), seconds=10.0)), 80, 12)

    assert re.fullmatch(r"and \d+ more positions", lines[-1])
    assert len(lines) <= 12


def test_without_a_terminal_every_tick_is_a_line() -> None:
    output = io.StringIO()
    report = report_of(replace(recording_of(part_of(), seconds=300.0), trend=trend_of(30)))

    with WatchView(Console(file=output, width=40)) as view:
        view.update(report)
        view.update(replace(report, recording=replace(report.recording, trend=trend_of(2))))

    assert output.getvalue().splitlines() == [
        "2026-11-29 15:08:20 UTC  1,000 drafts, length 1.55 (1.49 - 1.61), position 0 31.4%, prefix hits 29.0%",
        "2026-11-29 15:03:40 UTC  no draft step, prefix hits 1.0%",
    ]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_names_do_not_drive_the_live_view(name: str) -> None:
    report = hostile(name)

    text = "\n".join([*drawn(report, 80, 24), watch_line(report)])

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_live_view_of_a_terminal_is_drawn_and_left_in_order() -> None:
    output = io.StringIO()
    console = Console(file=output, width=80, height=24, force_terminal=True, color_system=None)

    with WatchView(console) as view:
        view.update(windowed())
        view.update(fleet())

    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert output.getvalue().count(hide) == output.getvalue().count(show) == 1
    assert "Draft acceptance of tiny, 3 engines" in output.getvalue()
