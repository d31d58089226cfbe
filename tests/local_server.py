"""A small HTTP server on this machine that answers as a test wants it to."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Respond = Callable[[http.server.BaseHTTPRequestHandler], None]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def server_that(respond: Respond, port: int = 0) -> Iterator[str]:
    """The URL of a server that answers each GET and POST with `respond`; without a port it takes a free one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            try:
                respond(self)
            except (BrokenPipeError, ConnectionResetError):  # the client went away, as some tests want it to
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def body_of(request: http.server.BaseHTTPRequestHandler) -> bytes:
    """What was sent with a POST."""
    return request.rfile.read(int(request.headers.get("Content-Length", 0)))


def answer(request: http.server.BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    """One whole answer, after all that was sent is read."""
    body_of(request)
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def begin_stream(request: http.server.BaseHTTPRequestHandler) -> Callable[[bytes], None]:
    """Begin a chunked answer, as uvicorn streams one; the function it gives sends one chunk, an empty one the end."""
    body_of(request)
    request.protocol_version = "HTTP/1.1"
    request.close_connection = True
    request.send_response(200)
    request.send_header("Content-Type", "text/event-stream; charset=utf-8")
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()

    def send(chunk: bytes) -> None:
        request.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        request.wfile.flush()

    return send
