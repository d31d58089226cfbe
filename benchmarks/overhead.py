"""What the patched runtime costs where it hides nothing: a stock and a patched server, side by side, on one GPU.

    python -m benchmarks.overhead STOCK_URL PATCHED_URL [--pairs 40] [--batch 1 64] [--out FILE]
                                  [--pids STOCK PATCHED --cores 14-17 18-21]

Each pair sends the same requests to both at the same time: once on an empty prefix cache and once with every prompt
restored. Both servers share whatever else happens on the machine, so their times compare the runtime alone; one after
the other they differ by tens of percent from one second to the next. Pairs are short and many, for a core that is held
up spoils one pair and not the median. With every second pair the servers change turns in being asked first, for the
client takes its time too, and with --pids they change cores with every pair. Where both round alike they
also draft alike; where they do not, the ratio of draft steps a second compares them at equal acceptance.

Steps are timed in the workers: in the patched one some through the runtime and some past it, in turns, which is
steadier than any difference between two processes; and in the stock one, where both are the same and nothing records
rows either: what they differ by there is the error of this measurement.
"""

import argparse
import asyncio
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from dspark_cli.facts.bootstrap import bootstrap_interval
from tests.measured_server import Counters, Server, long_prompts, write_json

ROUNDS = {1: 2, 64: 1}
STEPS_A_TURN = 8
TIMED_ROUNDS = {1: 10, 64: 3}
SEED = 20261130


@dataclass(frozen=True)
class Pair:
    """Output tokens a second, and what both said: requests with the same text, draft steps and accepted tokens."""

    batch: int
    traffic: str
    stock: float
    patched: float
    stock_drafted: tuple[int, int]
    patched_drafted: tuple[int, int]
    same_text: int
    requests: int

    @property
    def ratio(self) -> float:
        return self.patched / self.stock

    @property
    def ratio_of_steps(self) -> float:
        """Draft steps a second, patched over stock: what the ratio would be if both had accepted alike."""
        return self.ratio * self.patched_drafted[0] / self.stock_drafted[0]


@dataclass(frozen=True)
class Places:
    """Whose processes run where; they change places with every pair."""

    pids: tuple[int, int]
    cores: tuple[set[int], set[int]]

    def swap(self, turn: int) -> None:
        for which, pid in enumerate(self.pids):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                for thread in process.threads():
                    with suppress(ProcessLookupError):
                        os.sched_setaffinity(thread.id, self.cores[(which + turn) % 2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stock")
    parser.add_argument("patched")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--pids", type=int, nargs=2, help="of the two API servers")
    parser.add_argument("--cores", type=_cores, nargs=2, help="such as 14-17 18-21")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    stock, patched = Server(given.stock), Server(given.patched)
    places = Places(tuple(given.pids), tuple(given.cores)) if given.pids else None
    for batch in given.batch:
        _rounds((stock, patched), batch, "cold", given.tokens)
    pairs, steps = [], {}
    for batch in given.batch:
        for traffic in ("cold", "warm"):
            for turn in range(given.pairs):
                if places:
                    places.swap(turn)
                in_turn = (stock, patched) if turn // 2 % 2 == 0 else (patched, stock)
                rounds = dict(zip(in_turn, _rounds(in_turn, batch, traffic, given.tokens), strict=True))
                pairs.append(_pair(batch, traffic, rounds[stock], rounds[patched]))
            named = f"batch {batch}, {traffic}"
            steps[named] = {
                "patched server": _draft_steps(patched, batch, traffic, given.tokens),
                "stock server": _draft_steps(stock, batch, traffic, given.tokens),
            }
            print(f"{_summary([pair for pair in pairs if (pair.batch, pair.traffic) == (batch, traffic)])}", flush=True)
            for server, times in steps[named].items():
                print(f"  draft step, {server}: {times}", flush=True)
    if given.out:
        about = {"date": str(date.today()), "vllm": stock.version(), "python": platform.python_version()}
        results = [{**asdict(pair), "ratio": pair.ratio, "ratio_of_steps": pair.ratio_of_steps} for pair in pairs]
        write_json(given.out, {**about, "pairs": results, "draft_steps": steps})
    return 0


def _cores(text: str) -> set[int]:
    first, last = text.split("-")
    return set(range(int(first), int(last) + 1))


@dataclass(frozen=True)
class Round:
    tokens_a_second: float
    draft_steps: int
    accepted: int
    texts: list[str]


def _pair(batch: int, traffic: str, stock: Round, patched: Round) -> Pair:
    return Pair(
        batch,
        traffic,
        stock.tokens_a_second,
        patched.tokens_a_second,
        (stock.draft_steps, stock.accepted),
        (patched.draft_steps, patched.accepted),
        sum(a == b for a, b in zip(stock.texts, patched.texts, strict=True)),
        len(stock.texts),
    )


def _summary(pairs: list[Pair]) -> str:
    same_drafts = sum(pair.stock_drafted == pair.patched_drafted for pair in pairs)
    return (
        f"batch {pairs[0].batch}, {pairs[0].traffic}: patched over stock {_median([pair.ratio for pair in pairs])},"
        f" draft steps a second {_median([pair.ratio_of_steps for pair in pairs])}, {len(pairs)} pairs; stock"
        f" {statistics.median(pair.stock for pair in pairs):,.0f} tokens/s; drafts equal in {same_drafts} pairs, texts"
        f" in {sum(pair.same_text for pair in pairs)} of {sum(pair.requests for pair in pairs)}"
    )


def _median(values: Sequence[float]) -> str:
    """With its 95% interval, a bootstrap over pairs."""
    interval = bootstrap_interval([(value,) for value in values], np.median, SEED)
    return f"{statistics.median(values):.4f}" + (" ({:.4f} to {:.4f})".format(*interval) if interval else "")


def _rounds(
    servers: Sequence[Server], batch: int, traffic: str, tokens: int, rounds_of: dict[int, int] = ROUNDS
) -> list[Round]:
    """Some rounds of requests on each server, all at once, on a prefix cache that is empty, or has every prompt; one
    of the servers is asked a moment before the other."""
    prompts = long_prompts(batch * rounds_of.get(batch, 1), 2)
    for server in servers:
        server.empty_prefix_cache()
        if traffic == "warm":
            server.complete(prompts, 1, batch)
    before = [server.counters() for server in servers]

    async def timed(server: Server, all_ready: asyncio.Barrier) -> tuple[float, list[str]]:
        async with server.client(batch) as client:
            await all_ready.wait()
            started = time.perf_counter()
            answers = await server.completions(client, prompts, tokens, {"ignore_eos": True})
            return time.perf_counter() - started, [answer["text"] for answer in answers]

    async def all_at_once() -> list[tuple[float, list[str]]]:
        all_ready = asyncio.Barrier(len(servers))
        return await asyncio.gather(*(timed(server, all_ready) for server in servers))

    rounds = []
    for server, counted, (wall, texts) in zip(servers, before, asyncio.run(all_at_once()), strict=True):
        after = _settled(server).since(counted)
        rounds.append(Round(len(prompts) * tokens / wall, int(after.drafts), int(after.accepted), texts))
    return rounds


def _settled(server: Server) -> Counters:
    """The counters once they have stopped: the last steps reach them after the answers."""
    counters = server.counters()
    while True:
        time.sleep(0.1)
        later = server.counters()
        if later == counters:
            return later
        counters = later


def _draft_steps(server: Server, batch: int, traffic: str, tokens: int) -> dict[str, Any]:
    """Medians of steps with a full batch (tests/faults/draft_faults.py); through the runtime and past it are the same
    in a stock server."""
    server.call("time_draft_steps", batch, STEPS_A_TURN)
    _rounds([server], batch, traffic, tokens, TIMED_ROUNDS)
    times: dict[str, Any] = server.call("draft_step_times")[0]
    return times


if __name__ == "__main__":
    sys.exit(main())
