"""One scrape of a vLLM server's /metrics."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dspark_cli.errors import BadInput, NotFit

if TYPE_CHECKING:
    import httpx

LARGEST_BODY = 16 * 1024 * 1024
"""A page has some 60 KB for each engine."""


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    """All samples of one answer of /metrics.

    `url` is for display, without credentials; `taken_at` is time.time() when the body had arrived.
    """

    url: str
    taken_at: float
    samples: tuple[Sample, ...]

    def named(self, name: str) -> Iterable[Sample]:
        return (sample for sample in self.samples if sample.name == name)


def scrape(url: str, timeout_s: float = 10.0) -> Scrape:
    """Fetch and parse `url`/metrics; all of it must end within `timeout_s`.

    Raises:
        BadInput: not an http(s) URL.
        NotFit: nobody answers, what answers is no vLLM server, or a proxy or certificate setting cannot be used.
    """
    address = metrics_address(url)
    shown = without_credentials(address)
    result: Future[Scrape] = Future()

    def work() -> None:
        try:
            body = _fetch(address, timeout_s)
            result.set_result(Scrape(without_credentials(url), time.time(), parse_samples(body, shown)))
        except Exception as error:
            result.set_exception(error)

    # httpx bounds each read, not the whole: a server that drips its headers would hold an ordinary call for ever.
    threading.Thread(target=work, daemon=True).start()
    try:
        return result.result(timeout_s)
    except TimeoutError:
        raise NotFit(
            f"{shown} did not answer within {timeout_s:g} s", "is the server overloaded? give it longer: --timeout"
        ) from None


def metrics_address(url: str) -> str:
    """`url` with /metrics at its end, whatever the user gave of it.

    Raises:
        BadInput: not an http(s) URL, or its host name cannot be one. The URL is not repeated: it may hold a password.
    """
    import httpx

    refusal = BadInput("what was given is not a server's URL", "give one like http://127.0.0.1:8000")
    try:
        parts = urlsplit(url)
        path = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
        address = parts._replace(path=f"{path}/metrics", fragment="").geturl()
        read = httpx.URL(address)
        # What raises later than it should: a port out of range, a host name that is no name.
        _ = parts.port, read.host, read.raw_host.decode("ascii").encode("idna")
    except (ValueError, httpx.InvalidURL):
        raise refusal from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal
    return address


def without_credentials(url: str) -> str:
    """`url`, one that metrics_address() takes, for display: without user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def parse_samples(body: str, address: str) -> tuple[Sample, ...]:
    """The samples of a Prometheus text that a vLLM server wrote.

    Raises:
        NotFit: not that format, cut short, or no metric of vLLM in it.
    """
    from prometheus_client.parser import text_string_to_metric_families

    if body and not body.endswith("\n"):
        raise NotFit(f"{address} sent a body that was cut short", "try again; a proxy may limit the length of answers")
    try:
        families = list(text_string_to_metric_families(body))
    except (ValueError, KeyError, IndexError) as error:
        raise NotFit(
            f"{address} answers, but not with Prometheus metrics ({type(error).__name__})",
            "give the URL of a vLLM server, like http://127.0.0.1:8000",
        ) from None
    samples = tuple(Sample(s.name, s.labels, s.value) for family in families for s in family.samples)
    if not any(sample.name.startswith("vllm:") for sample in samples):
        raise NotFit(
            f"{address} answers, but has no vllm: metric, so it is no vLLM server",
            "check host and port; a server started with --disable-log-stats keeps no metrics",
        )
    return samples


def _fetch(address: str, timeout_s: float) -> str:
    """Raises NotFit, or TimeoutError where one read takes all the time."""
    import httpx

    shown = without_credentials(address)
    try:
        with _client(timeout_s) as client, client.stream("GET", address) as response:
            return _body(response, shown)
    except httpx.TimeoutException:
        raise TimeoutError from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise NotFit(f"no server answers at {shown} ({reason})", "check host and port; is vLLM running?") from None
    except ValueError:  # the address itself was checked
        raise NotFit(
            f"{shown} leads to a host name that cannot be one",
            "see where the server redirects to, and check the proxy settings HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
        ) from None


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


def _body(response: "httpx.Response", shown: str) -> str:
    next_step = "give the URL of a vLLM server, like http://127.0.0.1:8000"
    if response.status_code != 200:
        raise NotFit(f"{shown} answers {response.status_code} {response.reason_phrase}", next_step)
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise NotFit(f"{shown} answers in the encoding {encoding[:20]!r} that was not asked for", next_step)
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise NotFit(f"{shown} sends more than {LARGEST_BODY >> 20} MiB", next_step)
    return body.decode("utf-8", errors="replace")
