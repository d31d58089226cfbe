"""Requests to a vLLM server's /v1/completions, streamed, so that each draft step is seen as it comes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_cli.facts.probe import ProbedRequest

if TYPE_CHECKING:
    import httpx

LONGEST_LINE = 1 << 20
LARGEST_REFUSAL = 4096
LONGEST_REASON = 200
MOST_FAILED = 3
ONE_ENGINE_HEADER = "X-data-parallel-rank"


@dataclass(frozen=True)
class CompletionsServer:
    """`address` is the URL of /v1/completions; `key` goes with every request, and is never shown."""

    address: str
    model: str
    key: str | None
    timeout_s: float
    concurrency: int


@dataclass(frozen=True)
class Prompt:
    """`number` is the prompt's, the same in every phase. `salt` separates its prefix from all others' in the cache.
    `engine` pins it to one engine of a data parallel server, for each has a prefix cache of its own."""

    number: int
    text: str
    output_tokens: int
    salt: str | None = None
    engine: int | None = None


@dataclass(frozen=True)
class Answers:
    requests: tuple[ProbedRequest, ...]
    failed: tuple[str, ...]
    seconds: float

    @property
    def gave_up(self) -> bool:
        """Whether so many requests failed that no more were sent."""
        return len(self.failed) >= MOST_FAILED


class Failed(Exception):
    """One request was not answered as it should be."""


def complete_all(server: CompletionsServer, prompts: Sequence[Prompt], done: Callable[[], None]) -> Answers:
    """Send all `prompts` at temperature 0, `server.concurrency` at a time, and call `done` after each.

    An interrupt (Ctrl-C) drops what is under way and raises KeyboardInterrupt. After MOST_FAILED no more are sent.
    """
    return asyncio.run(_complete_all(server, prompts, done))


async def _complete_all(server: CompletionsServer, prompts: Sequence[Prompt], done: Callable[[], None]) -> Answers:
    import httpx

    free = asyncio.Semaphore(server.concurrency)
    answered: list[ProbedRequest] = []
    failed: list[str] = []
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {server.key}"} if server.key else {})
    began = time.monotonic()

    async def one(client: "httpx.AsyncClient", prompt: Prompt) -> None:
        async with free:
            if len(failed) < MOST_FAILED:
                try:
                    answered.append(await asyncio.wait_for(_complete(client, server, prompt), server.timeout_s))
                except (Failed, httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
                    failed.append(_reason(error, server))
            done()

    # A pool that is smaller than the concurrency would count the wait for a connection as time to the first token.
    limits = httpx.Limits(max_connections=server.concurrency)
    async with httpx.AsyncClient(timeout=server.timeout_s, headers=headers, limits=limits) as client:
        await asyncio.gather(*(one(client, prompt) for prompt in prompts))
    return Answers(tuple(sorted(answered, key=lambda request: request.prompt)), tuple(failed), time.monotonic() - began)


async def _complete(client: "httpx.AsyncClient", server: CompletionsServer, prompt: Prompt) -> ProbedRequest:
    body: dict[str, Any] = {
        "model": server.model,
        "prompt": prompt.text,
        "max_tokens": prompt.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if prompt.salt is not None:
        body["cache_salt"] = prompt.salt
    pinned = {} if prompt.engine is None else {ONE_ENGINE_HEADER: str(prompt.engine)}
    began = time.monotonic()
    tally = _Tally()
    async with client.stream("POST", server.address, json=body, headers=pinned) as response:
        if response.status_code != 200:
            raise Failed(f"HTTP {response.status_code}: {await _said(response)}")
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Failed("the server compresses its answer, which was not asked for")
        async for event in _events(response):
            tally.take(event, time.monotonic() - began)
    return tally.request(prompt.number, time.monotonic() - began)


class _Tally:
    """Counts one answer's chunks."""

    def __init__(self) -> None:
        self.chunks = 0
        self.tokens = 0
        self.first_s: float | None = None
        self.usage: dict[str, Any] = {}
        self.told: tuple[int, int] | None = None

    def take(self, event: dict[str, Any], at_s: float) -> None:
        if event.get("error"):
            raise Failed(f"the server broke off: {_message(event)}")
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        self.told = _told(event) or self.told
        if not event.get("choices"):
            return
        tokens = _count(self.usage.get("completion_tokens"))
        if tokens is None:
            raise Failed("the server's chunks do not say how many tokens they hold")
        if tokens > self.tokens:
            self.first_s = at_s if self.first_s is None else self.first_s
            self.chunks += 1
            self.tokens = tokens

    def request(self, prompt: int, seconds: float) -> ProbedRequest:
        prompt_tokens = _count(self.usage.get("prompt_tokens"))
        if self.first_s is None:
            raise Failed("the server's answer holds no token")
        if not prompt_tokens:
            raise Failed("the server does not say how many tokens the prompt has")
        details = self.usage.get("prompt_tokens_details")
        return ProbedRequest(
            prompt=prompt,
            ttft_s=self.first_s,
            seconds=seconds,
            prompt_tokens=prompt_tokens,
            output_tokens=self.tokens,
            draft_steps=self.told[0] if self.told else self.chunks - 1,
            accepted=self.told[1] if self.told else self.tokens - self.chunks,
            told=self.told is not None,
            cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        )


def _told(event: dict[str, Any]) -> tuple[int, int] | None:
    """Draft steps and accepted tokens, from a server with --per-request-spec-decode-metrics."""
    metrics = event.get("metrics")
    found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(found, dict):
        return None
    steps, accepted = _count(found.get("num_spec_steps")), _count(found.get("num_accepted_draft_tokens"))
    return None if steps is None or accepted is None else (steps, accepted)


async def _events(response: "httpx.Response") -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream, until [DONE]. Raises Failed where it ends without."""
    async for line in _lines(response):
        if not line.startswith(b"data:"):
            continue
        text = line.removeprefix(b"data:").strip()
        if text == b"[DONE]":
            return
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            raise Failed("the server streams something that is not its protocol")
        yield event
    raise Failed("the server's answer ends before its end")


async def _lines(response: "httpx.Response") -> AsyncIterator[bytes]:
    """Split at line feeds only: httpx's own lines end at U+2028 too, which a model may write. Raises Failed where one
    is too long."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LONGEST_LINE:
            raise Failed("the server streams something that is not its protocol")
    yield rest


async def _said(response: "httpx.Response") -> str:
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_REFUSAL:
            break
    try:
        return _message(json.loads(body))
    except (ValueError, RecursionError):
        return body.decode("utf-8", errors="replace")


def _message(document: object) -> str:
    """What an error of vLLM says, in the forms that it has had."""
    held = document.get("error", document) if isinstance(document, dict) else document
    said = held.get("message") if isinstance(held, dict) else held
    return str(held if said is None else said)


def _reason(error: Exception, server: CompletionsServer) -> str:
    """Servers repeat a key that they refuse, and so do errors over headers."""
    import httpx

    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return f"no whole answer within {server.timeout_s:g} s"
    said = str(error) or type(error).__name__
    return (said.replace(server.key, "***") if server.key else said)[:LONGEST_REASON]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None
