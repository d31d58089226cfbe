"""One GET from a server that may be slow, endless or no server at all: bounded in time and in length."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from dspark_cli.errors import NotFit
from dspark_cli.sources.own_server import OwnServer

if TYPE_CHECKING:
    import httpx

LARGEST_BODY = 16 * 1024 * 1024

Answer = TypeVar("Answer")


def within(timeout_s: float, shown: str, work: Callable[[], Answer]) -> Answer:
    """What `work` returns or raises; `shown` is the address for display.

    Raises:
        NotFit: it takes longer.
    """
    result: Future[Answer] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    # httpx bounds each read, not the whole: a server that drips its headers would hold an ordinary call for ever.
    threading.Thread(target=run, daemon=True).start()
    try:
        return result.result(timeout_s)
    except TimeoutError:
        raise NotFit(
            f"{shown} did not answer within {timeout_s:g} s", "is the server overloaded? give it longer: --timeout"
        ) from None


def get(
    address: str,
    shown: str,
    timeout_s: float,
    read: Callable[["httpx.Response"], Answer],
    headers: Mapping[str, str] | None = None,
    if_none_answers: str = "check host and port; is vLLM running?",
    own: OwnServer | None = None,
) -> Answer:
    """What `read` makes of the response, whose body is still to come.

    `if_none_answers` is the next step for the user then. With `own` it goes to that server, past all proxies.

    Raises:
        NotFit: no answer, or a redirect, proxy or certificate setting that cannot be used.
        TimeoutError: one read takes all the time.
    """
    import httpx

    try:
        with (
            own.client(timeout_s) if own else _client(timeout_s) as client,
            client.stream("GET", address, headers=headers) as response,
        ):
            return read(response)
    except httpx.TimeoutException:
        raise TimeoutError from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise NotFit(f"no server answers at {shown} ({reason})", if_none_answers) from None
    except ValueError:  # the address itself was checked
        raise NotFit(
            f"{shown} leads to a host name that cannot be one",
            "see where the server redirects to, and check the proxy settings HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
        ) from None


def collected(chunks: Iterable[bytes], shown: str, next_step: str) -> bytes:
    """The body, of at most LARGEST_BODY bytes. Raises NotFit for a longer one."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > LARGEST_BODY:
            raise NotFit(f"{shown} sends more than {LARGEST_BODY >> 20} MiB", next_step)
    return bytes(body)


def require_usable_settings() -> None:
    """Find out now whether requests can be sent with the environment's proxy and certificate settings.

    Raises:
        NotFit: they cannot.
    """
    with _client(1.0):
        pass


def _client(timeout_s: float) -> "httpx.Client":
    """An HTTP client with the environment's proxy and certificate settings; its answers come uncompressed."""
    import httpx

    try:
        return httpx.Client(timeout=timeout_s, follow_redirects=True, headers={"Accept-Encoding": "identity"})
    except ImportError:
        raise NotFit(
            "the proxy setting asks for SOCKS, which needs the package socksio",
            "install socksio, or unset the proxy setting (ALL_PROXY, HTTP_PROXY, HTTPS_PROXY)",
        ) from None
    except OSError as error:
        raise NotFit(
            f"a certificate setting cannot be used ({error})", "check SSL_CERT_FILE, SSL_CERT_DIR and SSLKEYLOGFILE"
        ) from None
    except (ValueError, httpx.InvalidURL):  # not repeated: a proxy's URL may hold a password
        raise NotFit(
            "a proxy setting cannot be used", "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY"
        ) from None
