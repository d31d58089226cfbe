"""Requests to a vLLM server's /v1/completions, streamed, so that each draft step is seen as it comes."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_cli.facts.probe import ProbedRequest

if TYPE_CHECKING:
    import httpx

LONGEST_LINE = 1 << 20
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


class Failed(Exception):
    """One request was not answered as it should be."""


def complete_all(server: CompletionsServer, prompts: Sequence[Prompt], done: Callable[[], None]) -> Answers:
    """Send all `prompts` at temperature 0, `server.concurrency` at a time, and call `done` after each.

    An interrupt (Ctrl-C) drops what is under way and raises KeyboardInterrupt. After three failures no more are sent.
    """
    return asyncio.run(_complete_all(server, prompts, done))


async def _complete_all(server: CompletionsServer, prompts: Sequence[Prompt], done: Callable[[], None]) -> Answers:
    import httpx

    free = asyncio.Semaphore(server.concurrency)
    answered: list[ProbedRequest] = []
    failed: list[str] = []
    headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
    began = time.monotonic()

    async def one(client: "httpx.AsyncClient", prompt: Prompt) -> None:
        async with free:
            if len(failed) < 3:
                try:
                    answered.append(await asyncio.wait_for(_complete(client, server, prompt), server.timeout_s))
                except (Failed, httpx.HTTPError, TimeoutError) as error:
                    failed.append(str(error) or type(error).__name__)
            done()

    async with httpx.AsyncClient(timeout=server.timeout_s, headers=headers) as client:
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

    def take(self, event: dict[str, Any], at_s: float) -> None:
        if "error" in event:
            raise Failed(f"the server broke off: {str(event['error'])[:200]}")
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
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
        if self.first_s is None or prompt_tokens is None:
            raise Failed("the server's answer holds no token")
        details = self.usage.get("prompt_tokens_details")
        return ProbedRequest(
            prompt=prompt,
            ttft_s=self.first_s,
            seconds=seconds,
            prompt_tokens=prompt_tokens,
            output_tokens=self.tokens,
            draft_steps=self.chunks - 1,
            accepted=self.tokens - self.chunks,
            cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        )


async def _events(response: "httpx.Response") -> Any:
    """The JSON objects of a server-sent event stream, until [DONE] or its end."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        text = line.removeprefix("data:").strip()
        if text == "[DONE]":
            return
        try:
            event = json.loads(text) if len(text) < LONGEST_LINE else None
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            raise Failed("the server streams something that is not its protocol")
        yield event


async def _said(response: "httpx.Response") -> str:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > 4096:
            break
    text = body.decode("utf-8", errors="replace")
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = text
    return str(message)[:200]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None
