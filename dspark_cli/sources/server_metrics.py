"""One scrape of a vLLM server's /metrics."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.sources.bounded_get import collected, get, within
from dspark_cli.sources.own_server import OwnServer

if TYPE_CHECKING:
    import httpx


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


def scrape(url: str, timeout_s: float = 10.0, own: OwnServer | None = None) -> Scrape:
    """Fetch and parse `url`/metrics, of the `own` server if it is that; all of it must end within `timeout_s`.

    Raises:
        BadInput: not an http(s) URL.
        NotFit: nobody answers, what answers is no vLLM server, or a proxy or certificate setting cannot be used.
    """
    address = metrics_address(url)
    shown = without_credentials(address)

    def fetched() -> Scrape:
        body = get(address, shown, timeout_s, lambda response: _body(response, shown), own=own)
        return Scrape(without_credentials(url), time.time(), parse_samples(body, shown))

    return within(timeout_s, shown, fetched)


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


def _body(response: "httpx.Response", shown: str) -> str:
    next_step = "give the URL of a vLLM server, like http://127.0.0.1:8000"
    if response.status_code != 200:
        raise NotFit(f"{shown} answers {response.status_code} {response.reason_phrase}", next_step)
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise NotFit(f"{shown} answers in the encoding {encoding[:20]!r} that was not asked for", next_step)
    return collected(response.iter_bytes(), shown, next_step).decode("utf-8", errors="replace")
