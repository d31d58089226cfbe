"""What the patched runtime costs where it hides nothing: a stock and a patched server, in turns, on one GPU.

    python -m benchmarks.overhead STOCK_URL PATCHED_URL [--pairs 6] [--batch 1 64] [--out FILE]

Each pair sends the same requests to both, one after the other, the order changing from pair to pair: once on an empty
prefix cache and once with every prompt restored. Both servers draft alike then, so output tokens a second compare the
runtime alone. The draft step is timed by events around vLLM's own call in the worker (tests/faults/draft_faults.py).
"""

import argparse
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from benchmarks.live_servers import Server, long_prompts, write_json

ROUNDS_A_REQUEST = {1: 6, 64: 3}


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stock")
    parser.add_argument("patched")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    stock, patched = Server(given.stock), Server(given.patched)
    for server in (stock, patched):
        _run(server, 64, "cold", given.tokens)
    pairs, steps = [], {}
    for batch in given.batch:
        for traffic in ("cold", "warm"):
            for at in range(given.pairs):
                both = (stock, patched) if at % 2 == 0 else (patched, stock)
                rounds = {server.url: _run(server, batch, traffic, given.tokens) for server in both}
                pairs.append(_pair(batch, traffic, rounds[stock.url], rounds[patched.url]))
            named = f"batch {batch}, {traffic}"
            steps[named] = {
                name: _draft_steps(server, batch, traffic, given.tokens)
                for name, server in (("stock", stock), ("patched", patched))
            }
            print(f"{_summary([pair for pair in pairs if (pair.batch, pair.traffic) == (batch, traffic)])}", flush=True)
            print(f"  draft step: {steps[named]}", flush=True)
    if given.out:
        about = {"date": str(date.today()), "vllm": stock.version(), "python": platform.python_version()}
        results = [{**asdict(pair), "ratio": pair.ratio} for pair in pairs]
        write_json(given.out, {**about, "pairs": results, "draft_steps": steps})
    return 0


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
    ratios = [pair.ratio for pair in pairs]
    same_drafts = sum(pair.stock_drafted == pair.patched_drafted for pair in pairs)
    return (
        f"batch {pairs[0].batch}, {pairs[0].traffic}: patched over stock {statistics.median(ratios):.4f} (median of"
        f" {len(ratios)} pairs, {min(ratios):.4f} to {max(ratios):.4f}); stock"
        f" {statistics.median(pair.stock for pair in pairs):,.0f} tokens/s; drafts equal in {same_drafts} pairs, texts"
        f" in {sum(pair.same_text for pair in pairs)} of {sum(pair.requests for pair in pairs)}"
    )


def _run(server: Server, batch: int, traffic: str, tokens: int) -> Round:
    """One round of requests on a prefix cache that is empty, or has every prompt."""
    prompts = long_prompts(batch * ROUNDS_A_REQUEST.get(batch, 3), 2)
    server.empty_prefix_cache()
    if traffic == "warm":
        server.complete(prompts, 1, batch)
    before, started = server.counters(), time.perf_counter()
    answers = server.complete(prompts, tokens, batch, ignore_eos=True)
    wall = time.perf_counter() - started
    after = server.counters().since(before)
    texts = [answer["text"] for answer in answers]
    return Round(after.generated / wall, int(after.drafts), int(after.accepted), texts)


def _draft_steps(server: Server, batch: int, traffic: str, tokens: int) -> dict[str, float]:
    """Median microseconds of a draft step with a full batch, on the device and on the host."""
    server.call("time_draft_steps", batch)
    _run(server, batch, traffic, tokens)
    timed: dict[str, float] = server.call("draft_step_times")[0]
    return timed


if __name__ == "__main__":
    sys.exit(main())
