"""Scrapes of servers that misbehave: each ends with one clear reason."""

import http.server
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.sources.bounded_get import LARGEST_BODY
from dspark_cli.sources.server_metrics import metrics_address, parse_samples, scrape, without_credentials
from tests.local_server import Respond, server_that
from tests.paths import FIXTURES

RECORDED = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()


def sending(body: bytes, status: int = 200) -> Respond:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return respond


def dripping(at_once: bytes, drop: bytes) -> Respond:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            request.wfile.write(b"HTTP/1.1 " + at_once)
            for _ in range(200):
                request.wfile.write(drop)
                time.sleep(0.02)

    return respond


def redirecting(location: str, after_s: float = 0) -> Respond:
    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        time.sleep(after_s)
        with suppress(OSError):
            request.send_response(302)
            request.send_header("Location", location)
            request.send_header("Content-Length", "0")
            request.end_headers()

    return respond


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


@pytest.mark.parametrize(
    "respond",
    [
        pytest.param(dripping(b"200 OK\r\nContent-Length: 100000\r\n\r\n", b"#"), id="the body"),
        pytest.param(dripping(b"200 OK\r\nX-Long: ", b"a"), id="a header"),
        pytest.param(dripping(b"103 Early Hints\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"), id="responses 103"),
        pytest.param(dripping(b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x"), id="a chunk extension"),
        pytest.param(redirecting("/metrics", after_s=0.1), id="redirects"),
    ],
)
def test_a_server_that_drips_is_given_up_in_time(respond: Respond) -> None:
    with server_that(respond) as url, pytest.raises(NotFit, match=r"did not answer within 0\.3 s"):
        scrape(url, timeout_s=0.3)


def test_a_compressed_answer_is_neither_asked_for_nor_read() -> None:
    asked: list[str | None] = []

    def respond(request: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["Accept-Encoding"])
        endless_name = b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"
        dripping(b"200 OK\r\nContent-Encoding: gzip\r\n\r\n" + endless_name, b"a")(request)

    with server_that(respond) as url, pytest.raises(NotFit, match="encoding 'gzip'"):
        scrape(url)
    assert asked == ["identity"]


def test_an_answer_too_large_is_refused() -> None:
    with server_that(sending(b"#" * (LARGEST_BODY + 1))) as url, pytest.raises(NotFit, match="more than 16 MiB"):
        scrape(url)


@pytest.mark.parametrize("location", ["http://a..b/", "http://xn--a:1/"])
def test_a_redirect_to_no_host_is_the_servers_fault(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")

    with server_that(redirecting(location)) as url, pytest.raises(NotFit, match="leads to a host name"):
        scrape(url)


@pytest.mark.parametrize(
    ("variable", "value", "next_step"),
    [
        ("ALL_PROXY", "socks5://user:SECRET@127.0.0.1:1", "install socksio, or unset the proxy setting"),
        ("HTTP_PROXY", "foo://user:SECRET@x", "check HTTP_PROXY"),
        ("HTTP_PROXY", "http://user:SECRET", "check HTTP_PROXY"),
        ("HTTP_PROXY", "http://user:SECRET@a..b", "check the proxy settings HTTP_PROXY"),
        ("SSL_CERT_FILE", "/nonexistent", "check SSL_CERT_FILE"),
        ("SSL_CERT_FILE", __file__, "check SSL_CERT_FILE"),
        ("SSLKEYLOGFILE", "/nonexistent/x", "SSLKEYLOGFILE"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    variable: str, value: str, next_step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)

    with pytest.raises(NotFit) as refused:
        scrape("http://127.0.0.1:1")

    assert next_step in refused.value.next_step
    assert "SECRET" not in refused.value.what + refused.value.next_step


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
    "url",
    [
        *("", "127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://[::1", "file:///etc"),
        *("http://a..b/", "http://.a/", "http://xn--a:1/", f"http://{'a' * 70}/", "http://a\x00b/"),
        *("http://127.0.0.1:1/\ud800", "http://127.0.0.1:1/\udcff", "http://\ud800/", "http://u\ud800:p@127.0.0.1/"),
        *("http://user:SECRET", "user:SECRET@host:8000", "http://user:SE/SECRET@host", "http://[?key=SECRET"),
    ],
    ids=ascii,
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadInput, match="not a server's URL") as refused:
        metrics_address(url)
    assert "SECRET" not in refused.value.what + refused.value.next_step


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://user:SECRET@host:1/v1?api_key=SECRET#x", "http://host:1/v1"),
        ("http://user:SE@CRET@[::1]:1", "http://[::1]:1"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


@pytest.mark.parametrize("respond", [sending(RECORDED), sending(b"", 403), sending(b"no metrics\n")])
def test_credentials_are_sent_and_not_shown(respond: Respond) -> None:
    asked: list[tuple[str, str | None]] = []

    def noting(request: http.server.BaseHTTPRequestHandler) -> None:
        asked.append((request.path, request.headers["Authorization"]))
        respond(request)

    with server_that(noting) as url:
        try:
            shown = scrape(url.replace("//", "//user:SECRET@") + "?api_key=SECRET").url
        except NotFit as refused:
            shown = refused.what + refused.next_step

    assert asked == [("/metrics?api_key=SECRET", "Basic dXNlcjpTRUNSRVQ=")]
    assert url in shown
    assert "SECRET" not in shown


@given(st.text(max_size=40) | st.text(max_size=40).map("http://".__add__))
def test_any_text_is_an_address_or_refused(url: str) -> None:
    with suppress(BadInput):
        assert without_credentials(metrics_address(url)).endswith("/metrics")


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
