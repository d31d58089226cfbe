"""What the probe asks of a server besides completions: its model, its counters at rest, a reset of its cache."""

import json
import time
from typing import TYPE_CHECKING

from dspark_cli.errors import BadInput, CannotSay, NotFit
from dspark_cli.facts.probe import ServerFacts
from dspark_cli.sources.acceptance_metrics import Snapshot, read_counters, snapshot_of
from dspark_cli.sources.bounded_get import collected, get, within
from dspark_cli.sources.cache_metrics import summary_of_metrics
from dspark_cli.sources.server_metrics import Scrape, metrics_address, scrape, without_credentials

if TYPE_CHECKING:
    import httpx

RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")
LONGEST_NAME = 200
COUNTED_WITHIN_S = 15.0
RESTS_WITHIN_S = 3.0
BETWEEN_LOOKS_S = 0.25
NOT_A_SERVER = "give the URL of a vLLM server, like http://127.0.0.1:8000"


def server_facts(url: str, model: str | None, key: str | None, timeout_s: float) -> ServerFacts:
    """The server's model, engines and cache figures.

    Raises:
        NotFit: no vLLM server answers, it wants another key, it serves several models and `model` names none of them.
    """
    page = scrape(url, timeout_s)
    name, longest = _model(url, model, key, timeout_s)
    try:
        cache = summary_of_metrics(page, "").engines[0]
    except CannotSay:
        cache = None
    return ServerFacts(
        url=page.url,
        model=name,
        engines=tuple(sorted({index for _, index in read_counters(page)})),
        max_model_len=longest,
        block_tokens=cache.block_tokens if cache else None,
        kv_tokens=cache.kv_tokens if cache else None,
        prefix_caching=cache.prefix_caching if cache else None,
        requests_running=requests_in(page),
    )


def completions_address(url: str) -> str:
    return metrics_address(url).removesuffix("/metrics") + "/v1/completions"


def settled_snapshot(url: str, finished: int | None, timeout_s: float) -> tuple[Snapshot, bool]:
    """The counters once they rest, and whether they do: two looks alike, and no request of anybody under way.

    Where `finished` is given, at least that many requests in all must have been counted. A server with other traffic
    never rests: once ours are counted, it gets little more time for it, and the last look is given.
    """
    began = time.monotonic()
    before: Snapshot | None = None
    while True:
        page = scrape(url, timeout_s)
        now, waited = snapshot_of(page), time.monotonic() - began
        counted = finished is None or finished_in(now) >= finished
        if counted and before is not None and before.engines == now.engines and requests_in(page) == 0:
            return now, True
        if waited > (RESTS_WITHIN_S if counted else COUNTED_WITHIN_S):
            return now, False
        before = now
        time.sleep(BETWEEN_LOOKS_S)


def finished_in(taken: Snapshot) -> int:
    return sum(counts.traffic.finished_requests or 0 for counts in taken.engines.values())


def requests_in(page: Scrape) -> int:
    """Requests that run or wait; what is no count is taken as none."""
    counts = (sample.value for name in RUNNING for sample in page.named(name))
    return sum(int(count) for count in counts if 0 <= count < 1 << 53)


def reset_prefix_cache(url: str, key: str | None, timeout_s: float) -> None:
    """Empty the server's own prefix cache; a KV connector keeps what it has.

    Raises:
        NotFit: the server does not offer it, or could not.
    """
    address = metrics_address(url).removesuffix("/metrics") + "/reset_prefix_cache"
    shown = without_credentials(address)

    def posted() -> None:
        import httpx

        try:
            answer = httpx.post(address, headers=_authorization(key), timeout=timeout_s)
        except httpx.HTTPError as error:
            raise NotFit(f"{shown} gives no answer ({type(error).__name__})", "is the server still there?") from None
        if answer.status_code == 404:
            raise NotFit(
                "the server has no reset endpoint",
                "start it with VLLM_SERVER_DEV_MODE=1, or leave --reset-prefix-cache out",
            )
        if not answer.is_success:
            raise NotFit(f"{shown} answers {answer.status_code}", "try again when no request is running")

    within(timeout_s, shown, posted)


def _model(url: str, wanted: str | None, key: str | None, timeout_s: float) -> tuple[str, int | None]:
    entries = _models(url, key, timeout_s)
    names = [str(entry.get("id", "")) for entry in entries]
    known = ", ".join(each[:LONGEST_NAME] for each in names[:5])
    if wanted is None and not names:
        raise NotFit("the server lists no model", "name it: --model NAME")
    name = wanted if wanted is not None else names[0]
    if names and name not in names:
        raise BadInput(f"the server does not serve {name!r}, but {known}", "give one of these: --model NAME")
    longest = next((entry.get("max_model_len") for entry in entries if entry.get("id") == name), None)
    return name, longest if isinstance(longest, int) and longest > 0 else None


def _models(url: str, key: str | None, timeout_s: float) -> list[dict[str, object]]:
    address = metrics_address(url).removesuffix("/metrics") + "/v1/models"
    shown = without_credentials(address)

    def read(response: "httpx.Response") -> list[dict[str, object]]:
        if response.status_code in (401, 403):
            raise NotFit(
                f"{shown} wants an API key ({response.status_code})",
                "set VLLM_API_KEY, or name the variable that holds it: --api-key-env NAME",
            )
        if response.status_code != 200:
            raise NotFit(f"{shown} answers {response.status_code} {response.reason_phrase}", NOT_A_SERVER)
        try:
            data = json.loads(collected(response.iter_bytes(), shown, NOT_A_SERVER))["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            data = None
        if not isinstance(data, list):
            raise NotFit(f"{shown} answers, but not as a vLLM server", NOT_A_SERVER)
        return [entry for entry in data if isinstance(entry, dict)]

    return within(timeout_s, shown, lambda: get(address, shown, timeout_s, read, _authorization(key)))


def _authorization(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
