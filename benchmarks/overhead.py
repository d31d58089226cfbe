"""What the patched runtime costs where it hides nothing: a stock and a patched server on one GPU.

    python -m benchmarks.overhead STOCK_URL PATCHED_URL [--pairs 60] [--batch 1 64] [--out FILE]
                                  [--pids STOCK PATCHED --cores 2-9] [--servers-only] [--rest SECONDS]

Three measurements, from the whole to the detail.

* Two servers are sent the same short burst of requests, one after the other, and change turns with every pair. Half of
  a burst's texts are new, half are restored. A machine whose cores are shared with others gets faster and slower by
  tens of percent within seconds, and one process may be slow for longer: the interval says how much that is. With
  --cores all processes of both servers have the same cores. Where the servers round alike they draft alike; where they
  do not, draft steps a second compare them at equal acceptance.
* One server is sent bursts through the runtime and past it, in the same way. That leaves out how one process differs
  from another, and what is in both: recording, in the captured graph and of prefills (benchmarks/written_rows.py has
  its time), and the note that a request came. In the stock server both are the same: what they differ by there is the
  error.
* Within one server's bursts, engine steps go through the runtime and past it in turns of a few milliseconds, which
  leaves out admissions too.

The last two are for model runner V2: --servers-only leaves them out. A worker of vLLM spins for a second after its last
step; where it shares a core with the other server's, --rest 1.3 waits until that is over.
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
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from dspark_cli.facts.bootstrap import bootstrap_interval
from tests.measured_server import Counters, Server, long_prompts, write_json

PIECES = 2
BURST_TOKENS = {1: 96, 64: 64}
"""Of each request. A burst has as many requests as run at once, at batch 1 two, one after the other."""
SETTLES_IN_S = 0.03
STEPS_A_TURN = 8
TIMED_TOKENS = 480
TIMED_ROUNDS = {1: 10, 64: 4}
SEED = 20261130


@dataclass(frozen=True)
class Side:
    """One half of every pair: a server, and whether its draft steps go past the patched runtime; None leaves it as it
    was started."""

    server: Server
    past_runtime: bool | None = None

    def prepare(self) -> None:
        if self.past_runtime is not None:
            self.server.call("leave_runtime_out", self.past_runtime)

    def put_back(self) -> None:
        if self.past_runtime is not None:
            self.server.call("leave_runtime_out", False)


@dataclass(frozen=True)
class Burst:
    """Output tokens, the time that they took, the answers, and what was drafted for them."""

    tokens: int
    seconds: float
    texts: list[str]
    drafted: Counters

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def steps_a_second(self) -> float:
        return self.drafted.drafts / self.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stock")
    parser.add_argument("patched")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--pids", type=int, nargs=2, help="of the two API servers")
    parser.add_argument("--cores", type=_cores, help="where all their processes run, such as 2-9")
    parser.add_argument("--servers-only", action="store_true")
    parser.add_argument("--rest", type=float, default=SETTLES_IN_S, help="seconds between bursts")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    stock, patched = Server(given.stock), Server(given.patched)
    if given.pids and given.cores:
        _keep_on(given.pids, given.cores)
    measured = (
        ("patched over stock server", Side(stock), Side(patched)),
        ("patched server, through over past", Side(patched, True), Side(patched, False)),
        ("stock server, the same", Side(stock, True), Side(stock, False)),
    )
    about = {"date": str(date.today()), "vllm": stock.version(), "python": platform.python_version()}
    results: list[dict[str, Any]] = []

    def keep(what: str, batch: int, measured: dict[str, Any]) -> None:
        results.append({"what": what, "batch": batch, **measured})
        print(_line(results[-1]), flush=True)
        if given.out:
            write_json(given.out, {**about, "measured": results})

    for batch in given.batch:
        for name, base, other in measured[:1] if given.servers_only else measured:
            keep(name, batch, asyncio.run(_pairs(base, other, batch, given.pairs, given.rest)))
        if given.servers_only:
            continue
        for name, server in (("patched server", patched), ("stock server", stock)):
            keep(f"{name}, turns of steps", batch, _turns(server, batch))
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


async def _pairs(base: Side, other: Side, batch: int, count: int, rest: float) -> dict[str, Any]:
    """`ratio` is of output tokens a second, other over base; `ratio_of_steps` of draft steps a second."""
    restored = long_prompts(max(batch // 2, 1), PIECES)
    sides = (base, other)
    bursts: dict[Side, list[Burst]] = {side: [] for side in sides}
    async with base.server.client(batch) as to_base, other.server.client(batch) as to_other:
        clients = {base: to_base, other: to_other}
        try:
            for side in sides:
                await _burst(side, clients[side], _texts(restored, f"of {batch} to warm up"), batch, rest)
            for turn in range(count):
                for place, side in enumerate(sides if turn % 2 == 0 else sides[::-1]):
                    # In one server the texts that the other side has just been sent are not new any more.
                    new = f"{turn} of {batch}" + (f", {place}" if base.server == other.server else "")
                    bursts[side].append(await _burst(side, clients[side], _texts(restored, new), batch, rest))
        finally:
            for side in sides:
                side.put_back()
    pairs = list(zip(bursts[base], bursts[other], strict=True))
    return {
        "ratio": _with_interval([b.rate / a.rate for a, b in pairs]),
        "ratio_of_steps": _with_interval([b.steps_a_second / a.steps_a_second for a, b in pairs]),
        "tokens_a_second": [[burst.rate for burst in bursts[side]] for side in sides],
        "draft_steps": [[burst.drafted.drafts for burst in bursts[side]] for side in sides],
        "acceptance_length": [_acceptance_length(bursts[side]) for side in sides],
        "same_texts": _same_texts(bursts[base], bursts[other]),
        "texts": sum(len(burst.texts) for burst in bursts[base]),
    }


def _acceptance_length(bursts: Sequence[Burst]) -> float:
    return 1 + sum(burst.drafted.accepted for burst in bursts) / sum(burst.drafted.drafts for burst in bursts)


def _same_texts(some: Sequence[Burst], others: Sequence[Burst]) -> int:
    return sum(
        a == b for one, other in zip(some, others, strict=True) for a, b in zip(one.texts, other.texts, strict=True)
    )


def _texts(restored: Sequence[str], burst: str) -> list[str]:
    """The restored ones, and as many that nobody has sent yet."""
    new = [f"# burst {burst}\n{text}" for text in long_prompts(len(restored), PIECES, first=29)]
    return [text for both in zip(new, restored, strict=True) for text in both]


async def _burst(side: Side, client: httpx.AsyncClient, texts: Sequence[str], batch: int, rest: float) -> Burst:
    """At batch 1 one text after the other, else all in one request: a client that sends them one by one is felt."""
    side.prepare()
    before = side.server.settled(rest)
    tokens, prompts = BURST_TOKENS[batch], list(texts) if batch == 1 else [list(texts)]
    started = time.perf_counter()
    answers = [await side.server.completion(client, prompt, tokens, {"ignore_eos": True}) for prompt in prompts]
    took = time.perf_counter() - started
    drafted = side.server.settled(rest).since(before)
    texts_back = [choice["text"] for answer in answers for choice in answer["choices"]]
    return Burst(len(texts) * tokens, took, texts_back, drafted)


def _turns(server: Server, batch: int) -> dict[str, Any]:
    """Steps with a full batch, of texts that are restored (tests/faults/draft_faults.py). `ratio` is of engine steps a
    second, through the runtime over past it: of every turn with those before and behind it, the median."""
    prompts = long_prompts(batch, PIECES)
    server.complete(prompts, 1, batch)
    server.call("time_draft_steps", batch, STEPS_A_TURN)
    for _ in range(TIMED_ROUNDS[batch]):
        server.complete(prompts, TIMED_TOKENS, batch, ignore_eos=True)
    times: dict[str, Any] = server.call("draft_step_times")[0]
    ratios = list(_ratios(times.pop("turns")))
    return {**times, "ratio": _with_interval(ratios)}


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


def _line(result: dict[str, Any]) -> str:
    ratio = result["ratio"]
    line = f"batch {result['batch']:>2}, {result['what']}: {_said(ratio)}, of {ratio['of']}"
    if "ratio_of_steps" not in result:
        return (
            f"{line}; microseconds through {_microseconds(result['patched'])}, past {_microseconds(result['past it'])}"
        )
    rates = [statistics.median(rates) for rates in result["tokens_a_second"]]
    lengths = result["acceptance_length"]
    return (
        f"{line}, draft steps a second {_said(result['ratio_of_steps'])}; {rates[0]:,.0f} and {rates[1]:,.0f} tokens/s,"
        f" lengths {lengths[0]:.3f} and {lengths[1]:.3f}, {result['same_texts']} of {result['texts']} texts the same"
    )


def _said(ratio: dict[str, Any]) -> str:
    interval = " ({:.4f} to {:.4f})".format(*ratio["interval"]) if ratio["interval"] else ""
    return f"{ratio['median']:.4f}{interval}"


def _microseconds(times: dict[str, float]) -> str:
    return (
        f"{times['host_us']:.0f} host, {times['device_us']:.0f} device, {times['engine_step_us']:.0f} engine step"
        f" ({times['steps']} steps)"
    )


if __name__ == "__main__":
    sys.exit(main())
