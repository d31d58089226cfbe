"""The tool reaches the server that it started, and no other: by its socket or its certificate, and past proxies."""

import http.server
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.errors import NotFit
from dspark_cli.sources.own_server import OwnServer
from dspark_cli.sources.server_metrics import scrape
from dspark_cli.sources.vllm_log import address_in
from tests.local_server import answer, server_that
from tests.paths import FIXTURES

METRICS = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer(self, 200, METRICS)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: Path, name: str) -> Path:
    """A certificate for another host than this one, and its key, in one file."""
    file, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}.example"]
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", *options, "-keyout", str(key), "-out", str(file), *subject],
        check=True,
        capture_output=True,
        timeout=60,
    )
    file.write_bytes(file.read_bytes() + key.read_bytes())
    return file


def test_a_unix_socket_is_asked(tmp_path: Path) -> None:
    path = str(tmp_path / "server.sock")

    class OnSocket(socketserver.ThreadingUnixStreamServer):
        def get_request(self) -> tuple[socket.socket, Any]:
            connection, _ = super().get_request()
            return connection, ("socket", 0)

    with serving(OnSocket(path, Metrics)):
        own = OwnServer(f"unix:{path}")

        assert scrape(own.url, 10, own).samples


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("INFO Starting vLLM server on unix:/run/a b.sock", "unix:/run/a b.sock"),
        ("INFO Starting vLLM server on http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("INFO Starting vLLM server on https://[::]:8000", "https://127.0.0.1:8000"),
        ("INFO Starting vLLM server on http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_the_log_says_where_the_server_listens(line: str, address: str) -> None:
    assert address_in(line) == address


def test_https_is_trusted_by_the_servers_very_certificate(tmp_path: Path) -> None:
    ours, others = certificate(tmp_path, "ours"), certificate(tmp_path, "others")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        address = f"https://127.0.0.1:{server.server_port}"

        assert scrape(address, 10, OwnServer(address, ours)).samples
        for stranger in (OwnServer(address, others), OwnServer(address)):
            with pytest.raises(NotFit, match="CERTIFICATE_VERIFY_FAILED"):
                scrape(address, 10, stranger)


def test_a_certificate_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    own = OwnServer("https://127.0.0.1:9", tmp_path / "missing.pem")

    with pytest.raises(NotFit, match=r"missing\.pem cannot be read"):
        scrape(own.url, 10, own)


def test_no_proxy_hears_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def proxy(handler: http.server.BaseHTTPRequestHandler) -> None:
        heard.append(handler.path)
        answer(handler, 502, b"")

    with server_that(proxy) as proxy_url, server_that(lambda handler: answer(handler, 200, METRICS)) as url:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy_url)

        assert scrape(url, 10, OwnServer(url)).samples

    assert heard == []


def test_a_redirect_is_not_followed() -> None:
    def elsewhere(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", "http://127.0.0.1:9/metrics")
        handler.end_headers()

    with server_that(elsewhere) as url, pytest.raises(NotFit, match="answers 307"):
        scrape(url, 10, OwnServer(url))
