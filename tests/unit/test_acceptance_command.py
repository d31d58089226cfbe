"""`acceptance` and `probe` as a user meets them: exit codes, formats, refusals, and nothing that leaks or breaks."""

import http.server
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dspark_cli import main as entry
from dspark_cli.report.result_file import write_file
from tests.drafting_server import DraftingServer
from tests.live_server import TOOL, offline_environment
from tests.local_server import answer, server_that
from tests.paths import FIXTURES

PAGE = FIXTURES / "metrics-0.32-cpu-dflash.txt"
HEALTHY, STALE = (
    FIXTURES / "acceptance" / f"0.33-h200-dflash-{name}.json" for name in ("healthy-0", "stale-noise-restored")
)
KEY = "sk-very-secret-0123456789"
PROBE = ("--prompt-count", "8", "--output-tokens", "48", "--shares", "0.5", "--timeout", "20")


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


Tool = Callable[..., Done]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tool:
    """dspark-tool in this process, as its console entry runs it."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["dspark-tool", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            entry.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert "\x1b" not in out + err
        return Done(int(ended.value.code or 0), out, err)

    return run


def serves(page: str | bytes) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    content = page if isinstance(page, bytes) else page.encode()
    return lambda request: answer(request, 200, content)


def with_model(page: str, name: str) -> str:
    return page.replace('model_name="tiny"', f'model_name="{name}"')


def two_models() -> str:
    """One endpoint with two models, as a router's or an aggregator's may be."""
    page = PAGE.read_text()
    samples = "".join(line for line in page.splitlines(keepends=True) if line.startswith("vllm:spec_decode"))
    return page + with_model(samples, "other")


def test_good_drafts_end_with_0(tool: Tool) -> None:
    done = tool("acceptance", "--file", HEALTHY)

    assert done.code == 0
    assert "position" in done.out


def test_collapsed_drafts_end_with_1(tool: Tool) -> None:
    done = tool("acceptance", "--file", STALE)

    assert done.code == 1
    assert "error: " in done.out


@pytest.mark.parametrize(
    ("file", "fail_on", "code"),
    [
        (STALE, "never", 0),
        (STALE, "ERROR", 1),
        (STALE, "info", 1),
        (HEALTHY, "info", 1),
        (HEALTHY, "warning", 0),
        (HEALTHY, "error", 0),
    ],
)
def test_fail_on_says_from_which_severity_on_it_is_1(tool: Tool, file: Path, fail_on: str, code: int) -> None:
    assert tool("acceptance", "--file", file, "--fail-on", fail_on).code == code


def test_too_little_data_ends_with_4(tool: Tool, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(PAGE.read_text().replace('"} 286.0', '"} 150.0'))

    assert tool("acceptance", "--file", page).code == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "it takes one source"),
        (["--url", "http://127.0.0.1:1", "--file", PAGE], "it takes one source"),
        (["--log", "x", "--example", "healthy"], "it takes one source"),
        (["--file", PAGE, "--watch", "1"], "--watch looks at servers"),
        (["--file", PAGE, "--interval", "1"], "--interval looks at servers"),
        (["--url", "http://127.0.0.1:1", "--interval", "1", "--watch", "1"], "give one of them"),
        (["--url", "http://127.0.0.1:1", "--watch", "0"], "more than 0 seconds"),
        (["--file", PAGE, "--timeout", "inf"], "more than 0 seconds"),
        (["--file", PAGE, "--expect", "3-2"], "--expect '3-2'"),
        (["--file", PAGE, "--expect", "much"], "--expect 'much'"),
        (["--file", PAGE, "--worth", "1"], "between 0 and 1"),
        (["--file", PAGE, "--worth", "nan"], "between 0 and 1"),
        (["--file", PAGE, "--fail-on", "bad"], "no severity"),
        (["--file", PAGE, "--model", "other"], "nothing is counted of the model 'other'"),
        (["--file", PAGE, "--model-card", "/no/card"], "/no/card cannot be read"),
        (["--file", "/no/file"], "/no/file cannot be read"),
        (["--log", "/no/log"], "/no/log cannot be read"),
        (["--example", "none"], "no example 'none'"),
        (["--prometheus", "http://127.0.0.1:1", "--query-range", "soon"], "soon"),
        (["diff", "/no/a", PAGE], "/no/a cannot be read"),
    ],
)
def test_bad_input_ends_with_2_and_two_lines(tool: Tool, arguments: list[object], said: str) -> None:
    done = tool("acceptance", *arguments)

    assert done.code == 2
    assert said in done.err
    assert done.out == ""
    assert [line.partition(":")[0] for line in done.err.splitlines()[-2:]] == ["error", "next"]


def test_two_formats_are_refused_in_the_one_that_programs_read(tool: Tool) -> None:
    done = tool("acceptance", "--file", PAGE, "--json", "--csv")

    assert (done.code, done.document["exit_code"]) == (2, 2)
    assert "two formats" in done.err


def test_no_server_ends_with_3(tool: Tool) -> None:
    assert tool("acceptance", "--url", "http://127.0.0.1:1").code == 3


@pytest.mark.parametrize(("name", "code"), [("healthy", 0), ("collapsed", 1)])
def test_an_example_needs_no_server(tool: Tool, name: str, code: int) -> None:
    done = tool("acceptance", "--example", name, "--json")

    assert done.code == code
    assert done.document["recording"]["source"] == "example"


def test_json_is_one_document_that_can_be_read_again(tool: Tool, tmp_path: Path) -> None:
    first = tool("acceptance", "--file", PAGE, "--json")
    (tmp_path / "saved.json").write_text(first.out)

    again = tool("acceptance", "--file", tmp_path / "saved.json", "--json")

    assert again.document == first.document
    assert first.document["profile"]["accepted"] == 193


def test_csv_has_a_row_for_each_position(tool: Tool) -> None:
    done = tool("acceptance", "--file", HEALTHY, "--csv")

    assert done.code == 0
    assert len(done.out.splitlines()) >= 8
    assert "\x00" not in done.out


def test_html_is_written_beside_the_report(tool: Tool, tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    done = tool("acceptance", "--file", HEALTHY, "--html", page, "--json")

    assert (done.code, done.document["command"]) == (0, "acceptance")
    assert f"the page is in {page}" in done.err.replace("\n", "")
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("place", ["no/folder/report.html", ".", "x" * 300])
def test_a_page_that_cannot_be_written_is_named(tool: Tool, tmp_path: Path, place: str) -> None:
    done = tool("acceptance", "--file", HEALTHY, "--html", tmp_path / place)

    assert done.code == 2
    assert "cannot be written" in done.err
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_file_is_replaced_whole_and_a_device_never(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)

    write_file(link, "after")
    write_file(Path("/dev/null"), "gone")

    assert (link.is_symlink(), target.read_text()) == (True, "after")
    assert Path("/dev/null").is_char_device()


def test_a_link_that_leads_to_itself_is_no_place_for_a_page(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert tool("acceptance", "--file", HEALTHY, "--html", tmp_path / "loop").code == 2


def test_several_models_want_one_named(tool: Tool) -> None:
    with server_that(serves(two_models())) as url:
        both = tool("acceptance", "--url", url)
        one = tool("acceptance", "--url", url, "--model", "other", "--json")

    assert both.code == 2
    assert "several models are counted here: other, tiny" in both.err
    assert "--model" in both.err
    assert one.document["model"] == "other"


HOSTILE = "\\\\evil\\n[bold]x[/bold]\x1b[31m\x07\u202e<script>alert(1)</script>"


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_a_hostile_model_name_drives_neither_terminal_nor_page(tool: Tool, form: list[str], tmp_path: Path) -> None:
    """The fixture refuses control characters on either stream."""
    page = tmp_path / "page.html"

    with server_that(serves(with_model(PAGE.read_text(), HOSTILE))) as url:
        done = tool("acceptance", "--url", url, "--html", page, *form)

    assert done.code == 0
    assert "<script>alert" not in page.read_text()
    assert "\x07" not in done.out + done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["acceptance", "--url", "{}"],
        ["acceptance", "--url", "{}", "--json"],
        ["acceptance", "--url", "{}", "--interval", "0.05"],
        ["acceptance", "diff", "{}", "{}"],
        ["acceptance", "diff", "{}", "{}", "--json"],
        ["acceptance", "diff", "/no/file", "{}"],
        ["acceptance", "--file", "{}"],
        ["acceptance", "--prometheus", "{}"],
        ["probe", "--url", "{}"],
        ["probe", "--url", "{}", "--against", "{}", "--trailing-block"],
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_a_password_in_a_url_is_never_shown(tool: Tool, arguments: list[str], there: bool) -> None:
    with server_that(serves(PAGE.read_text())) as url:
        address = (url if there else "http://127.0.0.1:1").replace("http://", "http://user:hunter2@")
        done = tool(*(each.format(address) for each in arguments))

    assert "hunter2" not in done.out + done.err


def test_better_and_worse_have_their_exit_codes(tool: Tool) -> None:
    same, worse, better = (
        tool("acceptance", "diff", a, b) for a, b in ((HEALTHY, HEALTHY), (HEALTHY, STALE), (STALE, HEALTHY))
    )

    assert (same.code, worse.code, better.code) == (0, 1, 0)
    assert "no difference shown" in same.out
    assert "worse" in worse.out
    assert "better" in better.out


def test_too_little_to_compare_ends_with_4(tool: Tool, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(PAGE.read_text().replace('"} 286.0', '"} 150.0'))

    done = tool("acceptance", "diff", page, HEALTHY, "--json")

    assert (done.code, done.document["verdict"]) == (4, "too little data")


def test_ctrl_c_ends_a_watch_with_its_report() -> None:
    with server_that(serves(PAGE.read_text())) as url:
        process = start("acceptance", "--url", url, "--watch", "0.2", "--json")
        time.sleep(6)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert "Traceback" not in err
    assert json.loads(out)["recording"]["source"] == "metrics"
    assert process.returncode in (0, 4)


@pytest.mark.parametrize("arguments", [["acceptance", "--interval", "60"], ["probe"]])
def test_ctrl_c_while_nothing_is_measured_ends_with_130(arguments: list[str]) -> None:
    """`probe` waits for its list of models here."""

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        if request.path != "/metrics":
            time.sleep(20)
        answer(request, 200, PAGE.read_bytes())

    with server_that(respond) as url:
        process = start(*arguments, "--url", url)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=15)

    assert process.returncode == 130
    assert "Traceback" not in out + err


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=offline_environment()
    )


@pytest.mark.parametrize(("harm", "code", "verdict"), [(False, 0, "harmless"), (True, 1, "harmful")])
def test_a_probe_finds_out_whether_restored_prefixes_hurt(tool: Tool, harm: bool, code: int, verdict: str) -> None:
    with DraftingServer(harm=harm).serving() as url:
        done = tool("probe", "--url", url, *PROBE, "--json")

    assert (done.document["verdict"]["verdict"], done.code) == (verdict, code)
    assert [phase["name"] for phase in done.document["phases"]] == [
        "cold",
        "restored whole",
        "restored 50%",
        "cold again",
        "short, cold",
    ]
    assert {phase["requests"] for phase in done.document["phases"]} == {8}


def test_a_probe_is_shown_in_words(tool: Tool) -> None:
    with DraftingServer(harm=True).serving() as url:
        done = tool("probe", "--url", url, *PROBE)

    assert done.code == 1
    assert "restored prefixes: harmful" in done.out


def test_a_server_that_ignores_salts_gets_a_line_at_the_start(tool: Tool) -> None:
    server = DraftingServer(salts=False)

    with server.serving() as url:
        tool("probe", "--url", url, *PROBE, "--json")
        again = tool("probe", "--url", url, *PROBE, "--json")

    assert again.document["result"]["freshness"] == "a line at its start"
    assert again.code == 0


@pytest.mark.parametrize(("resets", "code"), [(True, 0), (False, 3)])
def test_the_servers_cache_is_reset_where_it_can_be(tool: Tool, resets: bool, code: int) -> None:
    with DraftingServer(resets=resets, salts=False).serving() as url:
        done = tool("probe", "--url", url, *PROBE, "--reset-prefix-cache", "--json")

    assert done.code == code
    if resets:
        assert done.document["result"]["freshness"] == "the reset endpoint"
    else:
        assert "VLLM_SERVER_DEV_MODE=1" in done.document["next"]


@pytest.mark.parametrize(
    "models",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"data": {}}',
        b'{"data": [7, null]}',
        b'{"data": []}',
        b'{"data": [{"id": "a\\u001b[31m\\nnext: rm", "max_model_len": 1e999}]}',
        b'{"data": [{"id": null, "max_model_len": -1}, {"id": [1]}]}',
    ],
)
def test_a_list_of_models_of_any_shape_ends_in_a_clear_line(tool: Tool, models: bytes) -> None:
    """It is no vLLM server, so the requests to come fail as well."""

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        known = {"/metrics": PAGE.read_bytes(), "/v1/models": models}.get(request.path)
        answer(request, 404 if known is None else 200, known or b"not here")

    with server_that(respond) as url:
        done = tool("probe", "--url", url)

    assert done.code in (3, 4)
    assert [line.partition(":")[0] for line in done.err.splitlines()[-2:]] == ["error", "next"]


def test_a_server_without_a_drafter_is_not_probed(tool: Tool) -> None:
    server = DraftingServer(drafter=False)

    with server.serving() as url:
        done = tool("probe", "--url", url, "--json")

    assert (done.code, done.document["verdict"]["verdict"]) == (4, "not exercised")
    assert server.requests == 0


def test_requests_that_begin_to_fail_end_the_probe(tool: Tool) -> None:
    """And with its report: no phase to come would tell more."""
    server = DraftingServer(fails_after=12)

    with server.serving() as url:
        done = tool("probe", "--url", url, *PROBE, "--json")

    assert done.code == 4
    assert [phase["name"] for phase in done.document["phases"]] == ["cold", "restored whole"]
    assert done.document["verdict"]["why"] == "requests fail: HTTP 500: EngineCore died"
    assert done.document["result"]["stopped"] == "HTTP 500: EngineCore died"
    assert server.requests <= 12 + 3 + 3


def test_requests_that_fail_before_a_phase_end_the_probe_too(tool: Tool) -> None:
    with DraftingServer(fails_after=20).serving() as url:
        done = tool("probe", "--url", url, *PROBE)

    assert "restored whole" in done.out
    assert "restored 50%" not in done.out
    assert "requests fail: " in done.out


def test_a_server_that_answers_no_completion_is_named(tool: Tool) -> None:
    with DraftingServer(fails_after=0).serving() as url:
        done = tool("probe", "--url", url)

    assert done.code == 4
    assert "the server answers no request: HTTP 500: EngineCore died" in done.err


def test_a_context_without_room_for_a_prompt_is_named(tool: Tool) -> None:
    with DraftingServer(context=128).serving() as url:
        done = tool("probe", "--url", url)
        two = tool("probe", "--url", url, "--against", url, "--trailing-block")

    assert done.code == two.code == 3
    assert "a context of 128 tokens has no room" in done.err
    assert "a context of 128 tokens has no room" in two.err


def test_fewer_prompts_than_asked_are_noted(tool: Tool, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("\n\n".join(f"{number} " + "word " * 900 for number in range(7)))

    with DraftingServer().serving() as url:
        done = tool("probe", "--url", url, *PROBE, "--prompts", texts, "--json")

    assert "7 prompts instead of 8: the file has no more that differ" in done.document["result"]["notes"]
    assert done.document["result"]["prompts"] == 7


@pytest.mark.parametrize("key", [None, "wrong-0123456789", f"{KEY} "])
def test_a_key_that_is_missing_or_wrong_is_asked_for_and_never_shown(
    tool: Tool, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if key is None:
        monkeypatch.delenv("VLLM_API_KEY", raising=False)
    else:
        monkeypatch.setenv("VLLM_API_KEY", key)

    with DraftingServer(key=KEY).serving() as url:
        done = tool("probe", "--url", url)

    assert done.code in (2, 3)
    assert key is None or key.strip() not in done.out + done.err


def test_the_right_key_is_sent_and_never_shown(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)

    with DraftingServer(key=KEY).serving() as url:
        done = tool("probe", "--url", url, *PROBE, "--shares", "none", "--api-key-env", "MY_KEY", "--json")

    assert done.code == 0
    assert KEY not in done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--shares", "0.5,x"], 2, "no parts of a prompt"),
        (["--shares", "1"], 2, "no parts of a prompt"),
        (["--shares", "nan"], 2, "no parts of a prompt"),
        (["--shares", ""], 2, "no parts of a prompt"),
        (["--shares", ",".join(["0.5"] * 9)], 2, "no parts of a prompt"),
        (["--timeout", "0"], 2, "more than 0 seconds"),
        (["--trailing-block"], 2, "compares two servers"),
        (["--against", "http://127.0.0.1:2"], 2, "compares two servers"),
        (["--prompts", "/no/file"], 2, "cannot be read"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], 2, "is not set"),
        ([], 3, "no server answers"),
    ],
)
def test_a_bad_probe_ends_in_one_clear_line(tool: Tool, arguments: list[str], code: int, said: str) -> None:
    done = tool("probe", "--url", "http://127.0.0.1:1", *arguments)

    assert done.code == code
    assert said in done.err
    assert done.out == ""


def test_another_model_than_the_served_ones_is_named(tool: Tool) -> None:
    with DraftingServer(models=("tiny", "x" * 5000)).serving() as url:
        done = tool("probe", "--url", url, "--model", "other")

    assert done.code == 2
    assert "does not serve 'other', but tiny, xxx" in done.err
    assert len(done.err) < 1000


def test_the_trailing_block_of_two_servers_is_compared(tool: Tool) -> None:
    with DraftingServer().serving() as a, DraftingServer(harm=True).serving() as b:
        same = tool("probe", "--url", a, "--against", a, "--trailing-block", *PROBE)
        worse = tool("probe", "--url", a, "--against", b, "--trailing-block", *PROBE, "--json")

    assert same.code == 0
    assert "no harm to the drafts" in same.out
    assert (worse.code, worse.document["worse"]) == (1, True)


@pytest.mark.parametrize("form", [["--json"], []])
def test_ctrl_c_in_a_phase_reports_what_was_measured(form: list[str]) -> None:
    server = DraftingServer(delay_s=0.02)

    with server.serving() as url:
        process = start("probe", "--url", url, *PROBE, *form)
        deadline = time.monotonic() + 60
        while server.requests < 1 + 8 + 4 and time.monotonic() < deadline:  # in the second phase
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "Traceback" not in out + err
    if form:
        assert [phase["name"] for phase in json.loads(out)["phases"]] == ["cold"]
        assert json.loads(out)["result"]["interrupted"]
    else:
        assert "interrupted: this is what was measured until then" in err
