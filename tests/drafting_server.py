"""A server that speaks as vLLM does to a probe: /v1/models, /v1/completions, and /metrics that count what it streams.

Drafts are made up: a prompt's text decides how much of each draft is accepted.
"""

import http.server
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.local_server import answer, begin_stream, body_of, server_that

CHARACTERS_A_TOKEN = 4
BLOCK = 16
DRAFTED = 3


@dataclass
class DraftingServer:
    """`harm` makes drafts on restored prefixes useless, `delay_s` comes before each draft step."""

    drafter: bool = True
    harm: bool = False
    salts: bool = True
    resets: bool = False
    """Whether it has the endpoint that empties its cache, as vLLM has with VLLM_SERVER_DEV_MODE=1."""
    delay_s: float = 0.0
    fails_after: int = 1 << 30
    """So many requests are answered."""
    key: str | None = None
    context: int = 4096
    models: tuple[str, ...] = ("tiny",)
    drafted: int = DRAFTED
    """Tokens a draft step; with 0 every step is one token."""
    requests: int = 0
    steps: int = 0
    accepted_at: list[int] = field(default_factory=list)
    queries: int = 0
    hits: int = 0
    running: int = 0
    seen: dict[str, list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.accepted_at = [0] * self.drafted
        self.drafter = self.drafter and self.drafted > 0

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        with server_that(self._respond, port) as url:
            yield url

    def _respond(self, request: http.server.BaseHTTPRequestHandler) -> None:
        if request.path == "/health":
            answer(request, 200, b"")
        elif request.path == "/metrics":
            answer(request, 200, self._metrics().encode())
        elif self.key and request.headers["Authorization"] != f"Bearer {self.key}":
            said = f"Unauthorized: {request.headers['Authorization']}"
            answer(request, 401, json.dumps({"error": said}).encode())
        elif request.path == "/reset_prefix_cache" and self.resets:
            self.seen.clear()
            answer(request, 200, b"")
        elif request.path == "/v1/models":
            models = [{"id": name, "object": "model", "max_model_len": self.context} for name in self.models]
            answer(request, 200, json.dumps({"object": "list", "data": models}).encode())
        elif request.path == "/v1/completions":
            self._complete(request)
        else:
            answer(request, 404, b'{"detail":"Not Found"}')

    def _complete(self, request: http.server.BaseHTTPRequestHandler) -> None:
        asked = json.loads(body_of(request))
        request.headers.replace_header("Content-Length", "0")
        with self.lock:
            self.requests += 1
            self.running += 1
            failing = self.requests > self.fails_after
            tokens, hits = self._prefill(asked["prompt"], asked.get("cache_salt", ""))
        try:
            if failing:
                answer(request, 500, b'{"error":{"message":"EngineCore died","type":"x","param":null,"code":500}}')
            else:
                self._stream(request, asked, tokens, hits)
        finally:
            with self.lock:
                self.running -= 1

    def _prefill(self, prompt: str, salt: str) -> tuple[int, int]:
        known = self.seen.setdefault(salt if self.salts else "", [])
        longest = max((common_length(prompt, each) for each in known), default=0)
        known.append(prompt)
        tokens = max(1, len(prompt) // CHARACTERS_A_TOKEN)
        hits = min(longest // CHARACTERS_A_TOKEN, tokens - 1) // BLOCK * BLOCK
        self.queries += tokens
        self.hits += hits
        return tokens, hits

    def _stream(
        self, request: http.server.BaseHTTPRequestHandler, asked: dict[str, object], tokens: int, hits: int
    ) -> None:
        send = begin_stream(request)
        wanted, done = int(str(asked["max_tokens"])), 1
        luck = zlib.crc32(str(asked["prompt"])[-40:].encode())
        self._send_chunk(send, tokens, done)
        while done < wanted:
            time.sleep(self.delay_s)
            luck = (luck * 1103515245 + 12345) % (1 << 31)
            accepted = 0 if self.harm and hits else (luck >> 16) % (self.drafted + 1)
            accepted = min(accepted, wanted - done - 1)
            done += 1 + accepted
            with self.lock:
                self.steps += 1
                for position in range(accepted):
                    self.accepted_at[position] += 1
            self._send_chunk(send, tokens, done)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens + done, "completion_tokens": done}
        send(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        send(b"data: [DONE]\n\n")
        send(b"")

    @staticmethod
    def _send_chunk(send: Callable[[bytes], None], prompt_tokens: int, done: int) -> None:
        usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + done, "completion_tokens": done}
        choice = {"index": 0, "text": "x", "logprobs": None, "finish_reason": None}
        send(b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n")

    def _metrics(self) -> str:
        label = f'engine="0",model_name="{self.models[0]}"'
        with self.lock:
            counters = {
                "vllm:prefix_cache_queries_total": self.queries,
                "vllm:prefix_cache_hits_total": self.hits,
                "vllm:external_prefix_cache_queries_total": 0,
                "vllm:external_prefix_cache_hits_total": 0,
                "vllm:num_requests_running": self.running,
                "vllm:num_requests_waiting": 0,
                "vllm:request_success_total": self.requests - self.running,
            }
            if self.drafter:
                counters |= {
                    "vllm:spec_decode_num_drafts_total": self.steps,
                    "vllm:spec_decode_num_draft_tokens_total": self.drafted * self.steps,
                    "vllm:spec_decode_num_accepted_tokens_total": sum(self.accepted_at),
                }
            positions = enumerate(self.accepted_at if self.drafter else ())
            lines = [f"{name}{{{label}}} {value}.0" for name, value in counters.items()]
            lines += [
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="{at}"}} {count}.0'
                for at, count in positions
            ]
        return "\n".join([*lines, ""])


def common_length(a: str, b: str) -> int:
    """Of the start that both have."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
