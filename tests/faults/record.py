"""Record draft acceptance of a real server under planted faults, for the fixtures of the findings' tests.

    python -m tests.faults.record http://127.0.0.1:8000 --name 0.32-cpu-dflash --out tests/fixtures/acceptance

The server runs with the worker extension of draft_faults.py and VLLM_SERVER_DEV_MODE=1, and nothing else uses it.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import httpx

from dspark_cli.facts.recording import Recording
from dspark_cli.probing.prompt_texts import built_in_texts
from dspark_cli.profiling.judge import report_on
from dspark_cli.report.json_document import to_json
from dspark_cli.sources.acceptance_metrics import between
from dspark_cli.sources.completions import CompletionsServer, Prompt, complete_all
from dspark_cli.sources.probed_server import completions_address, finished_in, server_facts, settled_snapshot

TIMEOUT_S = 300.0
CHARACTERS = 3400
"""About 1,000 tokens of the small models."""
OUTPUT_TOKENS = 48
FAULTS: tuple[tuple[str, str, float], ...] = (
    ("stale-noise", "stale-noise", 3.0),
    ("stale-zero", "stale-zero", 0.0),
    ("length-limit", "length-limit", 600.0),
    ("other-weights", "other-weights", 1.0),
    ("lossy-weights", "other-weights", 0.5),
    ("aux-layers", "aux-layers", 0.0),
)
DSPARK_FAULTS = (("no-markov", "no-markov", 0.0),)


def plant(url: str, method: str, *args: object) -> None:
    """Call a method of the worker extension."""
    body = {"method": method, "args": list(args)}
    httpx.post(f"{url}/collective_rpc", json=body, timeout=60).raise_for_status()


def traffic(url: str, server: CompletionsServer, texts: Sequence[str], restored: bool, tokens: int) -> Recording:
    """Serve `texts`, new to the cache or restored, and count what they drafted."""
    salt = token_hex(8)
    if restored:
        complete_all(server, [Prompt(at, text, 1, salt) for at, text in enumerate(texts)], lambda: None)
    before, _ = settled_snapshot(url, None, TIMEOUT_S)
    answers = complete_all(server, [Prompt(at, text, tokens, salt) for at, text in enumerate(texts)], lambda: None)
    if answers.failed:
        raise RuntimeError(answers.failed[0])
    after, _ = settled_snapshot(url, finished_in(before) + len(texts), TIMEOUT_S)
    window = between([before], [after])
    return replace(
        window,
        where=("recorded",),
        parts=tuple(replace(part, where="recorded") for part in window.parts),
        since_start=(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--name", required=True, help="what the files' names begin with")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument(
        "--healthy-runs", type=int, default=0, help="record so many runs without a fault, each with other texts"
    )
    parser.add_argument("--markov", action="store_true", help="the drafter has a Markov head")
    parser.add_argument("--no-faults", action="store_true")
    asked = parser.parse_args()
    facts = server_facts(asked.url, None, None, 30.0)
    server = CompletionsServer(completions_address(asked.url), facts.model, None, TIMEOUT_S, 4)

    def save(name: str, recording: Recording) -> None:
        report = report_on(recording)
        length = report.profile.mean_acceptance_length if report.profile else 1.0
        file = asked.out / f"{asked.name}-{name}.json"
        file.write_text(
            json.dumps(
                {key: json.loads(to_json("acceptance", report))[key] for key in ("dspark_tool", "recording")}, indent=1
            )
            + "\n"
        )
        print(f"{file.name:44} length {length:.3f}  {[finding.id for finding in report.findings]}", flush=True)

    texts = built_in_texts(asked.prompts, CHARACTERS, seed=1)
    if not asked.no_faults:
        for name, fault, amount in (*FAULTS, *(DSPARK_FAULTS if asked.markov else ())):
            plant(asked.url, "plant", fault, amount)
            save(f"{name}-restored", traffic(asked.url, server, texts, True, OUTPUT_TOKENS))
            if not name.startswith("stale"):
                save(f"{name}-cold", traffic(asked.url, server, texts, False, OUTPUT_TOKENS))
        plant(asked.url, "heal")
    for run in range(asked.healthy_runs):
        texts = built_in_texts(asked.prompts, CHARACTERS // (1 + run % 3), seed=100 + run)
        save(f"healthy-{run}", traffic(asked.url, server, texts, run % 2 == 1, OUTPUT_TOKENS + 16 * (run % 2)))


if __name__ == "__main__":
    main()
