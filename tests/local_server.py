"""A small HTTP server on this machine that answers as a test wants it to."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
