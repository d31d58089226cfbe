"""What the patched runtime does to acceptance: cold, warm and stale, under every policy, on one running server.

    python -m benchmarks.draft_context URL [--out FILE] [--prompts 24] [--pieces 3] [--tokens 64] [--tail PIECES]

The server runs `dspark-tool serve --status --draft-context validity` with VLLM_SERVER_DEV_MODE=1 and the worker
extension tests/faults/draft_faults.py, which changes the policy and overwrites the draft KV of restored blocks. For
each policy: prompts on an empty cache (cold), the same again (warm), and again with noise in the restored blocks
(stale).
With --tail the prompts share all but their last pieces with those that warmed the cache.
"""

import argparse
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from tests.measured_server import Server, long_prompts, write_json

POLICIES = ("off", "restored", "validity")
NOISE = 3.0


@dataclass(frozen=True)
class Phase:
    """Counters are the differences over the phase."""

    policy: str
    phase: str
    draft_steps: int
    acceptance_length: float
    kept: float
    hit_tokens: int
    restored_tokens: int
    valid_tokens: int
    hidden_tokens: int
    zeroed_tokens: int
    same_text_as_cold: int
    requests: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--pieces", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--tail", type=int, default=0, help="pieces that are new in every prompt that hits")
    parser.add_argument("--stock", action="store_true", help="a server without the runtime")
    parser.add_argument("--concurrency", type=int, default=1)
    given = parser.parse_args()
    server = Server(given.url)
    server.complete(["def main():"], 8)
    warming = long_prompts(given.prompts, given.pieces)
    measured = [f"{text}\n{tail}" for text, tail in zip(warming, _tails(given.prompts, given.tail), strict=True)]
    phases = [
        phase
        for policy in (("stock",) if given.stock else POLICIES)
        for phase in measure(server, policy, warming, measured, given.tokens, given.concurrency)
    ]
    print(f"vLLM {server.version()}, {given.url}")
    print(
        f"{'policy':<9} {'phase':<7} {'steps':>6} {'length':>7} {'kept':>6} {'restored':>9} {'hidden':>7} {'zeroed':>7}"
    )
    for phase in phases:
        print(
            f"{phase.policy:<9} {phase.phase:<7} {phase.draft_steps:>6} {phase.acceptance_length:>7.3f}"
            f" {phase.kept:>6.1%} {phase.restored_tokens:>9,} {phase.hidden_tokens:>7,} {phase.zeroed_tokens:>7,}"
        )
    if given.out:
        about = {"date": str(date.today()), "vllm": server.version(), "python": platform.python_version()}
        options = {name: value for name, value in vars(given).items() if name not in ("out", "url")}
        write_json(given.out, {**about, "options": options, "phases": [asdict(phase) for phase in phases]})
    return 0


def measure(
    server: Server, policy: str, warming: list[str], measured: list[str], tokens: int, concurrency: int
) -> list[Phase]:
    """Cold, warm and stale under `policy`; kept is the acceptance length over the cold one's."""
    if policy != "stock":
        server.call("treat_restored", policy)
    phases: list[Phase] = []
    cold_texts: list[str] = []
    for name in ("cold", "warm", "stale"):
        if name == "cold" or warming != measured:
            server.empty_prefix_cache()
        if name != "cold" and warming != measured:
            server.complete(warming, 1, concurrency)
        if name == "stale":
            server.call("plant", "stale-noise", NOISE)
        before, context = server.counters(), server.draft_context()
        answers = server.complete(measured, tokens, concurrency, ignore_eos=True)
        after, context_after = server.counters().since(before), server.draft_context()
        if name == "stale":
            server.call("heal")
        texts = [answer["text"] for answer in answers]
        cold_texts = cold_texts or texts
        length = after.acceptance_length
        phases.append(
            Phase(
                policy=policy,
                phase=name,
                draft_steps=int(after.drafts),
                acceptance_length=length,
                kept=length / (phases[0].acceptance_length if phases else length),
                hit_tokens=int(after.hits),
                same_text_as_cold=sum(a == b for a, b in zip(texts, cold_texts, strict=True)),
                requests=len(texts),
                **{
                    counter: context_after[counter] - context[counter]
                    for counter in ("restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")
                },
            )
        )
    return phases


def _tails(count: int, pieces: int) -> list[str]:
    return long_prompts(count, pieces, first=29) if pieces else [""] * count


if __name__ == "__main__":
    sys.exit(main())
