"""What the patched runtime costs where it hides nothing: a stock and a patched server on one GPU.

    python -m benchmarks.overhead STOCK_URL PATCHED_URL [--pairs 60] [--batch 1 64] [--out FILE]
                                  [--pids STOCK PATCHED --cores 2-9]

Two measurements, for neither is enough by itself.

Pairs of servers: both are sent the same short burst of requests, one after the other, and with every pair they change
turns. Half of a burst's texts are new, half are restored. A machine whose cores are shared with others gets faster
and slower by tens of percent within seconds; a burst takes a fraction of one, and with --cores all processes of both
servers have the same cores, so a pair is under the same conditions as far as may be. Where the servers round alike they
draft alike; where they do not, draft steps a second compare them at equal acceptance.

Turns within one server: some engine steps go through the runtime and some past it, in turns of a few milliseconds.
That is steadier than any difference between two processes, but leaves out what is in both: recording, in the captured
graph (benchmarks/written_rows.py has its time). In the stock server both kinds of turns are the same: what they differ
by there is the error.
"""

import argparse
import asyncio
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from dspark_cli.facts.bootstrap import bootstrap_interval
from tests.measured_server import Counters, Server, long_prompts, write_json

PIECES = 2
BURST_TOKENS = {1: 64, 64: 32}
"""Of each request. A burst has as many requests as run at once, at batch 1 two, one after the other."""
STEPS_A_TURN = 8
TIMED_TOKENS = 480
TIMED_ROUNDS = {1: 10, 64: 4}
SEED = 20261130


@dataclass(frozen=True)
class Pair:
    """Output tokens a second in one burst, the same texts on both servers, and how many answers were the same."""

    batch: int
    stock: float
    patched: float
    same_texts: int
    requests: int

    @property
    def ratio(self) -> float:
        return self.patched / self.stock


@dataclass(frozen=True)
class Drafted:
    """Draft steps and accepted tokens over all bursts."""

    steps: float
    accepted: float

    @property
    def acceptance_length(self) -> float:
        return 1 + self.accepted / self.steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stock")
    parser.add_argument("patched")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--pids", type=int, nargs=2, help="of the two API servers")
    parser.add_argument("--cores", type=_cores, help="where all their processes run, such as 2-9")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    stock, patched = Server(given.stock), Server(given.patched)
    if given.pids and given.cores:
        _keep_on(given.pids, given.cores)
    results = []
    for batch in given.batch:
        pairs, drafted = asyncio.run(_pairs(stock, patched, batch, given.pairs))
        turns = {"patched server": _turns(patched, batch), "stock server": _turns(stock, batch)}
        results.append(_result(batch, pairs, drafted, turns))
        print(_line(results[-1]), flush=True)
    if given.out:
        about = {"date": str(date.today()), "vllm": stock.version(), "python": platform.python_version()}
        write_json(given.out, {**about, "batches": results})
    return 0


def _cores(text: str) -> set[int]:
    first, last = text.split("-")
    return set(range(int(first), int(last) + 1))


def _keep_on(pids: Sequence[int], cores: set[int]) -> None:
    for pid in pids:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)


async def _pairs(stock: Server, patched: Server, batch: int, count: int) -> tuple[list[Pair], list[Drafted]]:
    """The pairs, and what stock and patched have drafted over all of them."""
    restored = long_prompts(max(batch // 2, 1), PIECES)
    servers = (stock, patched)
    async with stock.client(batch) as to_stock, patched.client(batch) as to_patched:
        clients = dict(zip(servers, (to_stock, to_patched), strict=True))
        for server in servers:
            await server.completions(clients[server], restored, 1, {})
            await _burst(server, clients[server], _texts(restored, -1), batch)
        before = [_settled(server) for server in servers]
        pairs = []
        for turn in range(count):
            texts = _texts(restored, turn)
            in_turn = servers if turn % 2 == 0 else servers[::-1]
            bursts = {server: await _burst(server, clients[server], texts, batch) for server in in_turn}
            (stock_rate, stock_answers), (patched_rate, patched_answers) = bursts[stock], bursts[patched]
            same = sum(a == b for a, b in zip(stock_answers, patched_answers, strict=True))
            pairs.append(Pair(batch, stock_rate, patched_rate, same, len(texts)))
    drafted = [_settled(server).since(counted) for server, counted in zip(servers, before, strict=True)]
    return pairs, [Drafted(each.drafts, each.accepted) for each in drafted]


def _texts(restored: Sequence[str], turn: int) -> list[str]:
    """The restored ones, and as many that nobody has sent yet."""
    new = [f"# burst {turn}\n{text}" for text in long_prompts(len(restored), PIECES, first=29)]
    return [text for both in zip(new, restored, strict=True) for text in both]


async def _burst(
    server: Server, client: httpx.AsyncClient, texts: Sequence[str], batch: int
) -> tuple[float, list[str]]:
    tokens = BURST_TOKENS[batch]
    started = time.perf_counter()
    answers = await server.completions(client, texts, tokens, {"ignore_eos": True})
    return len(texts) * tokens / (time.perf_counter() - started), [answer["text"] for answer in answers]


def _settled(server: Server) -> Counters:
    """The counters once they have stopped: the last steps reach them after the answers."""
    counters = server.counters()
    while True:
        time.sleep(0.1)
        later = server.counters()
        if later == counters:
            return later
        counters = later


def _turns(server: Server, batch: int) -> dict[str, Any]:
    """Steps with a full batch, of texts that are restored (tests/faults/draft_faults.py). `ratio` is of engine steps a
    second, through the runtime over past it: of every turn with those before and behind it, the median."""
    prompts = long_prompts(batch, PIECES)
    server.complete(prompts, 1, batch)
    server.call("time_draft_steps", batch, STEPS_A_TURN)
    for _ in range(TIMED_ROUNDS[batch]):
        server.complete(prompts, TIMED_TOKENS, batch, ignore_eos=True)
    times: dict[str, Any] = server.call("draft_step_times")[0]
    return {**times, "ratio": _with_interval(list(_ratios(times.pop("turns"))))}


def _ratios(turns: Sequence[tuple[bool, float]]) -> Iterator[float]:
    """turns: whether it went through the runtime, and microseconds a step. A drift of the machine's speed cancels."""
    for (before, first), (through, middle), (behind, last) in zip(turns, turns[1:], turns[2:], strict=False):
        if before is behind is not through:
            beside = (first + last) / 2
            yield beside / middle if through else middle / beside


def _with_interval(ratios: Sequence[float]) -> dict[str, Any]:
    """The median and its 95% interval, a bootstrap."""
    interval = bootstrap_interval([(ratio,) for ratio in ratios], np.median, SEED)
    return {"median": statistics.median(ratios), "interval": interval, "of": len(ratios)}


def _result(batch: int, pairs: list[Pair], drafted: list[Drafted], turns: dict[str, Any]) -> dict[str, Any]:
    at_equal_acceptance = drafted[1].steps / drafted[0].steps
    return {
        "batch": batch,
        "ratio": _with_interval([pair.ratio for pair in pairs]),
        "ratio_of_steps": _with_interval([pair.ratio * at_equal_acceptance for pair in pairs]),
        "stock_tokens_a_second": statistics.median(pair.stock for pair in pairs),
        "acceptance_length": [each.acceptance_length for each in drafted],
        "same_texts": [sum(pair.same_texts for pair in pairs), sum(pair.requests for pair in pairs)],
        "turns": turns,
        "pairs": [{**asdict(pair), "ratio": pair.ratio} for pair in pairs],
    }


def _line(result: dict[str, Any]) -> str:
    def said(ratio: dict[str, Any]) -> str:
        interval = " ({:.4f} to {:.4f})".format(*ratio["interval"]) if ratio["interval"] else ""
        return f"{ratio['median']:.4f}{interval}"

    of_servers = (
        f"batch {result['batch']}: patched over stock {said(result['ratio'])}, draft steps a second"
        f" {said(result['ratio_of_steps'])}, {len(result['pairs'])} pairs; stock"
        f" {result['stock_tokens_a_second']:,.0f} tokens/s; lengths"
        f" {', '.join(f'{length:.3f}' for length in result['acceptance_length'])}; texts equal"
        f" {result['same_texts'][0]} of {result['same_texts'][1]}"
    )
    of_turns = [
        f"  {server}: engine steps a second, through over past, {said(times['ratio'])}, {times['ratio']['of']} turns;"
        f" microseconds through {_microseconds(times['patched'])}, past {_microseconds(times['past it'])}"
        for server, times in result["turns"].items()
    ]
    return "\n".join([of_servers, *of_turns])


def _microseconds(times: dict[str, float]) -> str:
    return (
        f"{times['host_us']:.0f} host, {times['device_us']:.0f} device, {times['engine_step_us']:.0f} engine step"
        f" ({times['steps']} steps)"
    )


if __name__ == "__main__":
    sys.exit(main())
