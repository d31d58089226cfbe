"""Scrapes of servers that misbehave: each ends with one clear reason."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.sources.server_metrics import metrics_address, parse_samples, scrape
from tests.paths import FIXTURES

RECORDED = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()
Respond = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def server_that(respond: Respond) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def sending(body: bytes, status: int = 200) -> Respond:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return respond


def dripping(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "100000")
    request.end_headers()
    try:
        for _ in range(200):
            request.wfile.write(b"#")
            request.wfile.flush()
            time.sleep(0.02)
    except OSError:
        pass


def test_a_recorded_page_is_scraped_whole() -> None:
    with server_that(sending(RECORDED)) as url:
        found = scrape(url)

    drafts = list(found.named("vllm:spec_decode_num_drafts_total"))
    assert [(sample.labels["model_name"], sample.value) for sample in drafts] == [("tiny", 286.0)]


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (sending(b"not found", 404), "404"),
        (sending(b"<html><body>It works!</body></html>\n"), "not with Prometheus metrics"),
        (sending(b"# HELP up Up.\n# TYPE up gauge\nup 1.0\n"), "no vLLM server"),
        (sending(RECORDED[: len(RECORDED) // 2].rstrip(b"\n")), "cut short"),
        (sending(b""), "no vLLM server"),
    ],
    ids=["404", "a web page", "another exporter", "cut short", "empty"],
)
def test_what_is_no_vllm_is_named(respond: Respond, reason: str) -> None:
    with server_that(respond) as url, pytest.raises(NotFit, match=reason):
        scrape(url)


def test_a_server_that_drips_is_given_up_in_time() -> None:
    with server_that(dripping) as url, pytest.raises(NotFit, match=r"did not answer within 0\.3 s"):
        scrape(url, timeout_s=0.3)


def test_a_connection_that_breaks_is_named() -> None:
    def breaking(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"half")

    with server_that(breaking) as url, pytest.raises(NotFit, match="no server answers"):
        scrape(url)


@pytest.mark.parametrize(
    ("given_url", "address"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/metrics"),
        ("http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/metrics"),
        ("https://host/prefix/v1/", "https://host/prefix/metrics"),
    ],
)
def test_any_usual_form_of_the_url_is_taken(given_url: str, address: str) -> None:
    assert metrics_address(given_url) == address


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://[::1", "file:///etc"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        metrics_address(url)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    try:
        samples = parse_samples(body.decode("utf-8", errors="replace"), "address")
    except NotFit:
        return
    assert any(sample.name.startswith("vllm:") for sample in samples)


@given(st.integers(0, len(RECORDED)), st.integers(0, 40), st.binary(max_size=40))
def test_a_damaged_page_is_parsed_or_refused(at: int, length: int, patch: bytes) -> None:
    body = RECORDED[:at] + patch + RECORDED[at + length :]

    with suppress(NotFit):
        parse_samples(body.decode("utf-8", errors="replace"), "address")
