"""Whether the ranks of one server do alike, and whether two servers do: drafts and hidden lengths, step by step.

    python -m benchmarks.ranks URL [--against URL] [--prompts 12] [--tokens 48] [--sleep] [--out FILE]

The server runs `dspark-tool serve --status` with tensor or decode context parallelism, VLLM_SERVER_DEV_MODE=1 and the
worker extension tests/faults/draft_faults.py. Prompts go to it one at a time: on an empty prefix cache (cold), again
(warm), and again with noise in the draft KV of the restored blocks (stale). With --sleep the server also sleeps and
wakes up, and all is sent once more. --against names a server whose drafts should be the same, say one without context
parallelism. The exit code is 1 where ranks differ.
"""

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx

from tests.measured_server import Server, long_prompts, write_json

NOISE = 3.0
COUNTED = ("admissions", "restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")


@dataclass(frozen=True)
class Phase:
    """drafts and hidden: of every prompt, a digest of each draft step, the same on every rank where ranks_equal."""

    name: str
    ranks: int
    ranks_equal: bool
    counters_equal: bool
    acceptance_length: float
    hits: int
    counted: dict[str, int]
    drafts: list[list[str]]
    hidden: list[list[str]]
    texts: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--against")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--sleep", action="store_true", help="the server was started with --enable-sleep-mode")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    server = Server(given.url)
    prompts = long_prompts(given.prompts, 3)
    phases = list(_phases(server, prompts, given))
    print(f"vLLM {server.version()}, {given.url}")
    for phase in phases:
        print(_line(phase), flush=True)
    others = list(_phases(Server(given.against), prompts, given)) if given.against else []
    agreement = {one.name: _agreement(one, other) for one, other in zip(phases, others, strict=False)}
    for name, alike in agreement.items():
        print(f"against {given.against}, {name}: {alike}")
    if given.out:
        about = {"date": str(date.today()), "vllm": server.version(), "python": platform.python_version()}
        write_json(given.out, {**about, "phases": [_short(phase) for phase in phases], "against": agreement})
    return 0 if all(phase.ranks_equal and phase.counters_equal for phase in phases) else 1


def _phases(server: Server, prompts: list[str], given: argparse.Namespace) -> Iterator[Phase]:
    yield from cold_warm_stale(server, prompts, given.tokens, "")
    if given.sleep:
        for call in ("sleep?level=1", "wake_up"):
            httpx.post(f"{server.url}/{call}", timeout=120).raise_for_status()
        yield from cold_warm_stale(server, prompts, given.tokens, "after wake-up, ", emptied=True)


def cold_warm_stale(
    server: Server, prompts: list[str], tokens: int, when: str, emptied: bool = False
) -> Iterator[Phase]:
    """With `emptied` the prefix cache should be empty already."""
    for name in ("cold", "warm", "stale"):
        if name == "cold" and not emptied:
            server.empty_prefix_cache()
        yield _phase(server, f"{when}{name}", prompts, tokens, noise=name == "stale")


def _phase(server: Server, name: str, prompts: list[str], tokens: int, noise: bool) -> Phase:
    before, context = server.counters(), server.draft_context()
    steps_of, texts = [], []
    for prompt in prompts:
        server.call("record_steps", NOISE if noise else 0.0)
        texts += [answer["text"] for answer in server.complete([prompt], tokens, ignore_eos=True)]
        steps_of.append([each["steps"] for each in server.call("recorded_steps")])
    counted, context_after = server.counters().since(before), server.draft_context()
    counters = [{key: rank[key] for key in COUNTED} for rank in context_after["ranks"]]
    return Phase(
        name=name,
        ranks=len(counters),
        ranks_equal=all(ranks[0] and all(rank == ranks[0] for rank in ranks) for ranks in steps_of),
        counters_equal=all(rank == counters[0] for rank in counters),
        acceptance_length=counted.acceptance_length,
        hits=int(counted.hits),
        counted={key: context_after[key] - context[key] for key in COUNTED},
        drafts=[[drafts for drafts, _ in ranks[0]] for ranks in steps_of],
        hidden=[[hidden for _, hidden in ranks[0]] for ranks in steps_of],
        texts=texts,
    )


def _line(phase: Phase) -> str:
    alike = {True: "equal", False: "DIFFERENT"}
    return (
        f"{phase.name:<22} {phase.ranks} ranks, {_steps(phase):>5} draft steps, {alike[phase.ranks_equal]};"
        f" counters {alike[phase.counters_equal]}; length {phase.acceptance_length:.3f}; hits {phase.hits:,};"
        f" valid {phase.counted['valid_tokens']:,}, hidden {phase.counted['hidden_tokens']:,}"
    )


def _agreement(one: Phase, other: Phase) -> dict[str, Any]:
    """same_first_steps: of every prompt, how many draft steps draft the same before one does not."""
    pairs = list(zip(one.drafts, other.drafts, strict=True))
    texts = sum(a == b for a, b in zip(one.texts, other.texts, strict=True))
    return {
        "draft_steps": [_steps(one), _steps(other)],
        "same_first_steps": [_same_first(mine, others) for mine, others in pairs],
        "of": [min(len(mine), len(others)) for mine, others in pairs],
        "same_texts": f"{texts} of {len(one.texts)}",
        "acceptance_length": [one.acceptance_length, other.acceptance_length],
    }


def _same_first(some: Sequence[str], others: Sequence[str]) -> int:
    pairs = list(zip(some, others, strict=False))
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))


def _steps(phase: Phase) -> int:
    return sum(map(len, phase.drafts))


def _short(phase: Phase) -> dict[str, Any]:
    hidden = len({digest for steps in phase.hidden for digest in steps})
    return {**asdict(phase), "drafts": _steps(phase), "hidden": hidden, "texts": len(phase.texts)}


if __name__ == "__main__":
    sys.exit(main())
