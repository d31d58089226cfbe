"""One scrape of a vLLM server's /metrics."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from dspark_cli.errors import BadInput, NotFit

LARGEST_BODY = 64 * 1024 * 1024


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Scrape:
    """All samples of one answer of /metrics. `taken_at` is time.time() when the body had arrived."""

    url: str
    taken_at: float
    samples: tuple[Sample, ...]

    def named(self, name: str) -> Iterable[Sample]:
        return (sample for sample in self.samples if sample.name == name)


def scrape(url: str, timeout_s: float = 10.0) -> Scrape:
    """Fetch and parse `url`/metrics; the whole transfer must end within `timeout_s`.

    Raises:
        BadInput: not an http(s) URL.
        NotFit: nobody answers, or what answers is no vLLM server.
    """
    address = metrics_address(url)
    body = _fetch(address, timeout_s)
    return Scrape(url, time.time(), parse_samples(body, address))


def metrics_address(url: str) -> str:
    """`url` with /metrics at its end, whatever the user gave of it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadInput(f"{url!r} is not a URL: {error}", "give one like http://127.0.0.1:8000") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"{url!r} is not a server's URL", "give one like http://127.0.0.1:8000")
    path = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
    return parts._replace(path=f"{path}/metrics", fragment="").geturl()


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
    import httpx

    deadline = time.monotonic() + timeout_s
    body = bytearray()
    try:
        with httpx.stream("GET", address, timeout=timeout_s, follow_redirects=True) as response:
            if response.status_code != httpx.codes.OK:
                raise NotFit(
                    f"{address} answers {response.status_code} {response.reason_phrase}",
                    "give the URL of a vLLM server, like http://127.0.0.1:8000",
                )
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the whole answer took too long")
                if len(body) > LARGEST_BODY:
                    raise NotFit(f"{address} sends more than {LARGEST_BODY >> 20} MiB", "give a vLLM server's URL")
    except httpx.TimeoutException:
        raise NotFit(
            f"{address} did not answer within {timeout_s:g} s", "is the server overloaded? give it longer: --timeout"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise NotFit(f"no server answers at {address} ({reason})", "check host and port; is vLLM running?") from None
    return body.decode("utf-8", errors="replace")
