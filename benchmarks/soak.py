"""Mixed traffic for minutes: preemptions, aborts, prefix hits. What must hold afterwards, is checked.

    python -m benchmarks.soak PLAIN_URL STOCK_URL PATCHED_URL... [--seconds 600] [--out FILE]

PLAIN serves without speculation, STOCK with it, PATCHED through the patched runtime; all with a KV pool that is too
small for the traffic. Prompts share heads of different lengths; some clients hang up half-way. Every so often the same
prompts go to all servers, one at a time, and their texts are compared with PLAIN's.
"""

import argparse
import asyncio
import platform
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import httpx

from tests.live_server import prompts
from tests.measured_server import IDLE_FOR_AT_MOST_S, Server, long_prompts, write_json

SEED = 20261129
TEMPERATURES = (0, 0, 0.8)
"""On a CPU, vLLM 0.32 gives a request at temperature 0 other tokens where sampled ones are drafted for beside it."""
COMPARE_EVERY_S = 45.0


@dataclass
class Likeness:
    """How texts compare with those without speculation: shares of a text before its first difference."""

    shares: list[float] = field(default_factory=list)

    def add(self, text: str, wanted: str) -> None:
        alike = next((at for at, (a, b) in enumerate(zip(text, wanted, strict=False)) if a != b), len(wanted))
        self.shares.append(1.0 if text == wanted else alike / max(len(wanted), 1))

    def __str__(self) -> str:
        same = sum(share == 1 for share in self.shares)
        mean = sum(self.shares) / max(len(self.shares), 1)
        return f"{same} of {len(self.shares)} texts the same, {mean:.0%} of a text before a difference"


@dataclass
class Traffic:
    """What one server was asked, and what went wrong."""

    completed: int = 0
    aborted: int = 0
    errors: list[str] = field(default_factory=list)
    under_load: Likeness = field(default_factory=Likeness)
    idle: Likeness = field(default_factory=Likeness)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plain")
    parser.add_argument("stock")
    parser.add_argument("patched", nargs="+")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=40, help="of each server")
    parser.add_argument("--compared", type=int, default=8, help="texts at a time; twice as many in the end")
    parser.add_argument("--unseeded", action="store_true", help="seeds of requests stop vLLM 0.32 on a CPU")
    parser.add_argument(
        "--greedy", action="store_true", help="no request is sampled; on a CPU sampled ones spoil the others"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    plain, servers = Server(given.plain), [Server(url) for url in (given.stock, *given.patched)]
    before = [server.counters() for server in servers]
    started = time.monotonic()
    try:
        traffic = asyncio.run(_soak(plain, servers, given, started + given.seconds))
    except httpx.HTTPError as error:
        sys.exit(f"a server stopped answering: {error}")
    results = []
    for server, seen, counted in zip(servers, traffic, before, strict=True):
        time.sleep(1)
        results.append(_account(server, seen, counted))
    print(f"{time.monotonic() - started:.0f} s, seed {SEED}, vLLM {servers[0].version()}")
    for result in results:
        print(result)
    if given.out:
        about = {"date": str(date.today()), "vllm": servers[0].version(), "python": platform.python_version()}
        write_json(given.out, {**about, "seconds": time.monotonic() - started, "servers": results})
    return 1 if any(result["errors"] or not result["adds_up"] for result in results) else 0


def _account(server: Server, seen: Traffic, before: Any) -> dict[str, Any]:
    after = server.counters().since(before)
    context = server.draft_context()
    buckets = context["acceptance"].get("buckets", [])
    everything = server.counters()
    sums_agree = sum(bucket["draft_steps"] for bucket in buckets) == everything.drafts and sum(
        bucket["accepted_tokens"] for bucket in buckets
    ) == int(everything.accepted)
    total = context["valid_tokens"] + context["hidden_tokens"] + context["zeroed_tokens"]
    return {
        "url": server.url,
        "completed": seen.completed,
        "aborted": seen.aborted,
        "errors": seen.errors[:5],
        "under_load": str(seen.under_load),
        "idle": str(seen.idle),
        "preemptions": after.preemptions,
        "hit_tokens": after.hits,
        "generated": after.generated,
        "acceptance_length": round(after.acceptance_length, 4),
        "context": {name: context[name] for name in context if name.endswith("_tokens") or name == "admissions"},
        "adds_up": bool(sums_agree and total == context["restored_tokens"]),
    }


async def _soak(plain: Server, servers: Sequence[Server], given: argparse.Namespace, until: float) -> list[Traffic]:
    traffic = [Traffic() for _ in servers]
    limits = httpx.Limits(max_connections=None, keepalive_expiry=IDLE_FOR_AT_MOST_S)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        clients = [
            _client(client, server, seen, random.Random(f"{SEED} {number}"), given, until)
            for server, seen in zip(servers, traffic, strict=True)
            for number in range(given.clients)
        ]
        await asyncio.gather(*clients, _compare(client, plain, servers, traffic, given.compared, until))
        alike = [seen.idle for seen in traffic]
        await _compare_once(client, plain, servers, alike, long_prompts(2 * given.compared, 2))
    return traffic


async def _client(
    client: httpx.AsyncClient,
    server: Server,
    seen: Traffic,
    chance: random.Random,
    given: argparse.Namespace,
    until: float,
) -> None:
    """One request after the other; a seventh are aborted."""
    pieces = prompts()
    while time.monotonic() < until:
        head = chance.randrange(6)
        shared = [pieces[(head * 7 + piece) % len(pieces)] for piece in range(chance.randrange(0, 6))]
        text = "\n".join([*shared, chance.choice(pieces)[: chance.randrange(20, 900)]])
        body: dict[str, Any] = {
            "model": "tiny",
            "prompt": text,
            "max_tokens": chance.randrange(8, 400),
            "temperature": 0 if given.greedy else chance.choice(TEMPERATURES),
            "stream": True,
        }
        if not given.unseeded:
            body["seed"] = chance.randrange(1 << 30)
        hangs_up_after = chance.randrange(1, 30) if chance.random() < 1 / 7 else None
        try:
            async with client.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    seen.errors.append(f"{answer.status_code}: {(await answer.aread())[:200]!r}")
                    continue
                lines = 0
                async for _ in answer.aiter_lines():
                    lines += 1
                    if hangs_up_after is not None and lines > hangs_up_after:
                        break
            seen.aborted += hangs_up_after is not None
            seen.completed += hangs_up_after is None
        except httpx.HTTPError as error:
            seen.errors.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(1)


async def _compare(
    client: httpx.AsyncClient,
    plain: Server,
    servers: Sequence[Server],
    traffic: Sequence[Traffic],
    count: int,
    until: float,
) -> None:
    """Now and then, beside the traffic, which PLAIN does not have."""
    first = 0
    while time.monotonic() + COMPARE_EVERY_S / 2 < until:
        alike = [seen.under_load for seen in traffic]
        await _compare_once(client, plain, servers, alike, long_prompts(count, 2, first))
        first += count
        await asyncio.sleep(min(COMPARE_EVERY_S, max(until - time.monotonic(), 0)))


async def _compare_once(
    client: httpx.AsyncClient,
    plain: Server,
    servers: Sequence[Server],
    alike: Sequence[Likeness],
    texts: Sequence[str],
) -> None:
    """Texts at temperature 0 against those without speculation."""
    expected = await _texts(client, plain, texts)
    for server, likeness in zip(servers, alike, strict=True):
        for answer, wanted in zip(await _texts(client, server, texts), expected, strict=True):
            likeness.add(answer, wanted)


async def _texts(client: httpx.AsyncClient, server: Server, texts: Sequence[str]) -> list[str]:
    answers = []
    for text in texts:
        body = {"model": "tiny", "prompt": text, "max_tokens": 48, "temperature": 0}
        answer = await client.post(f"{server.url}/v1/completions", json=body)
        answer.raise_for_status()
        answers.append(answer.json()["choices"][0]["text"])
    return answers


if __name__ == "__main__":
    sys.exit(main())
