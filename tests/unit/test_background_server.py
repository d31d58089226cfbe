"""A server that runs beside the work: ready or dead with its cause, and gone after the block."""

import sys
from pathlib import Path

import pytest

from dspark_cli.errors import NotFit
from dspark_cli.serving.background import ServerDied, in_background, wait_until_ready
from dspark_cli.tuning.launch import free_port
from tests.unit.test_server import gone_within

READY_LATE = """
import http.server, sys, time
time.sleep(0.5)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
print("up", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def program(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-u", "-c", text, *arguments]


def test_it_is_waited_for_and_gone_after_the_block(tmp_path: Path) -> None:
    port = free_port()
    lines: list[str] = []
    with in_background(program(READY_LATE, str(port)), {}, tmp_path / "log", lines.append) as server:
        wait_until_ready(server, f"http://127.0.0.1:{port}", within_s=60)
        pid = server.process.pid
        assert server.return_code is None

    assert gone_within(pid, seconds=1)
    assert lines == ["up"]
    assert (tmp_path / "log").read_text() == "up\n"


def test_its_death_is_told_with_its_cause(tmp_path: Path) -> None:
    text = "raise ValueError('no room for the KV cache')"
    with in_background(program(text), {}, tmp_path / "log") as server, pytest.raises(ServerDied) as died:
        wait_until_ready(server, f"http://127.0.0.1:{free_port()}", within_s=60)

    assert "exit code 1" in died.value.what
    assert "no room for the KV cache" in died.value.what
    assert str(tmp_path / "log") in died.value.next_step


def test_a_signal_that_killed_it_is_named(tmp_path: Path) -> None:
    text = "import os; os.kill(os.getpid(), 9)"
    with in_background(program(text), {}, tmp_path / "log") as server, pytest.raises(ServerDied, match="by signal 9"):
        wait_until_ready(server, f"http://127.0.0.1:{free_port()}", within_s=60)


def test_one_that_is_never_ready_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with (
        in_background(program("import time; time.sleep(60)"), {}, tmp_path / "log") as server,
        pytest.raises(NotFit, match="not ready within"),
    ):
        wait_until_ready(server, f"http://127.0.0.1:{free_port()}", within_s=0.3)
    assert gone_within(server.process.pid, seconds=1)


def test_a_log_that_cannot_be_written_is_named() -> None:
    with pytest.raises(NotFit, match="cannot be written"), in_background(program("pass"), {}, Path("/proc/no/log")):
        pass


def test_what_fails_in_the_block_leaves_no_server(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="of the work"),
        in_background(program("import time; time.sleep(60)"), {}, tmp_path / "log") as server,
    ):
        raise RuntimeError("of the work")
    assert gone_within(server.process.pid, seconds=1)


def test_its_secrets_reach_neither_its_log_nor_who_reads_its_lines(tmp_path: Path) -> None:
    lines: list[str] = []
    secret = "sk-0123456789"

    with in_background(program(f"print('key {secret} taken')"), {}, tmp_path / "log", lines.append, [secret]) as server:
        server.wait(30)

    assert lines == ["key *** taken"]
    assert (tmp_path / "log").read_text() == "key *** taken\n"


ENDLESS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        while True:
            self.wfile.write(b"x" * 65536)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.timeout(60)
def test_an_answer_without_end_is_an_answer(tmp_path: Path) -> None:
    port = free_port()
    with in_background(program(ENDLESS, str(port)), {}, tmp_path / "log") as server:
        wait_until_ready(server, f"http://127.0.0.1:{port}", within_s=30)

        assert server.return_code is None
