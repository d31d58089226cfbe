"""Running servers as proofs and benchmarks of the patched runtime use them: completions, counters, planted faults."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx

from dspark_cli.status_plugin.counters_question import MOMENT_S
from tests.live_server import call_workers, prompts

IDLE_FOR_AT_MOST_S = 2.0
"""A connection that is used again. vLLM closes one after 5 s, as httpx would: then now and then a request goes to one
that is just being closed."""
COUNTERS = {
    "drafts": "spec_decode_num_drafts",
    "accepted": "spec_decode_num_accepted_tokens",
    "generated": "generation_tokens",
    "hits": "prefix_cache_hits",
    "external_hits": "external_prefix_cache_hits",
    "preemptions": "num_preemptions",
}


@dataclass(frozen=True)
class Counters:
    """vLLM's own, as they stand."""

    drafts: float
    accepted: float
    generated: float
    hits: float
    external_hits: float
    preemptions: float

    @classmethod
    def read(cls, metrics: str) -> "Counters":
        values = {name: re.findall(rf"^vllm:{name}_total{{[^}}]*}} (\S+)", metrics, re.M) for name in COUNTERS.values()}
        return cls(*(sum(map(float, values[name])) for name in COUNTERS.values()))

    def since(self, before: "Counters") -> "Counters":
        return Counters(*(getattr(self, name) - getattr(before, name) for name in COUNTERS))

    @property
    def acceptance_length(self) -> float:
        return 1 + self.accepted / self.drafts if self.drafts else float("nan")


@dataclass(frozen=True)
class Server:
    """A vLLM server with VLLM_SERVER_DEV_MODE=1, --status and the worker extension tests/faults/draft_faults.py."""

    url: str

    def counters(self) -> Counters:
        return Counters.read(self._metrics())

    def settled(self, still_for: float = 1.0) -> Counters:
        """The counters once they stand still for so many seconds: the last steps of a request reach them after its
        answer, and one whose client hung up runs on for some."""
        counters = self.counters()
        while True:
            time.sleep(still_for)
            later = self.counters()
            if later == counters:
                return later
            counters = later

    def _metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def draft_context(self) -> dict[str, Any]:
        """The first worker's counters and the acceptance by restored length."""
        time.sleep(MOMENT_S + 0.1)  # answers of the last moment are given out again
        answer = httpx.get(f"{self.url}/dspark/status", timeout=30).json()["draft_context"]
        return {**answer["workers"][0], "acceptance": answer["acceptance"], "ranks": answer["workers"]}

    def call(self, method: str, *arguments: object) -> Any:
        return call_workers(self.url, method, *arguments)

    def empty_prefix_cache(self) -> None:
        httpx.post(f"{self.url}/reset_prefix_cache", timeout=60).raise_for_status()

    def version(self) -> str:
        return str(httpx.get(f"{self.url}/version", timeout=30).json()["version"])

    def complete(
        self, texts: Sequence[str], max_tokens: int, concurrency: int = 1, **options: object
    ) -> list[dict[str, Any]]:
        """The first choice of each text's completion, with its usage, at temperature 0; in order."""

        async def all_of_them() -> list[dict[str, Any]]:
            async with self.client(concurrency) as client:
                return await self.completions(client, texts, max_tokens, options)

        return asyncio.run(all_of_them())

    @contextmanager
    def generating(self, text: str, max_tokens: int) -> Iterator[None]:
        """While a request of `text` generates: from its first token until the block ends, where the client hangs up.

        Raises EndedEarly if the answer had ended before the block did, with the end of it.
        """
        body = {"model": "tiny", "prompt": text, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        with httpx.stream("POST", f"{self.url}/v1/completions", json=body | {"stream": True}, timeout=300) as answer:
            answer.raise_for_status()
            reading = _Reading(answer.iter_lines())
            yield
            if reading.ended:
                raise EndedEarly(f"the answer had ended before: {reading.lines} lines, the last {reading.last[:400]!r}")

    def client(self, concurrency: int) -> httpx.AsyncClient:
        """For so many requests at a time."""
        limits = httpx.Limits(max_connections=concurrency, keepalive_expiry=IDLE_FOR_AT_MOST_S)
        return httpx.AsyncClient(limits=limits, timeout=300)

    async def completions(
        self, client: httpx.AsyncClient, texts: Sequence[str], max_tokens: int, options: dict[str, object]
    ) -> list[dict[str, Any]]:
        async def one(text: str) -> dict[str, Any]:
            said = await self.completion(client, text, max_tokens, options)
            return {**said["choices"][0], "usage": said["usage"]}

        return list(await asyncio.gather(*(one(text) for text in texts)))

    async def completion(
        self, client: httpx.AsyncClient, prompt: str | list[str], max_tokens: int, options: dict[str, object]
    ) -> dict[str, Any]:
        """vLLM's whole answer; of several texts in one request, a choice each, in order."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **options}
        answer = await client.post(f"{self.url}/v1/completions", json=body)
        answer.raise_for_status()
        said: dict[str, Any] = answer.json()
        said["choices"].sort(key=lambda choice: choice["index"])
        return said


class EndedEarly(Exception):
    """A request that was to run beside others had ended before them."""


class _Reading:
    """Reads lines in a thread of its own, from the first one on, until they end or the connection is closed."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines, self.last = 1, next(lines)
        self._thread = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _read(self, lines: Iterator[str]) -> None:
        with suppress(httpx.HTTPError, httpx.StreamError, OSError):
            for line in lines:
                self.lines, self.last = self.lines + 1, line or self.last


def long_prompts(count: int, pieces: int, first: int = 0) -> list[str]:
    """`count` prompts that differ from the first line on, of `pieces` held-out texts (300 to 400 tokens) each."""
    texts = prompts()
    return [
        f"# module {at}\n" + "\n".join(texts[(first + at * pieces + piece) % len(texts)] for piece in range(pieces))
        for at in range(count)
    ]


def write_json(path: Any, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")
