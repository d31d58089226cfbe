"""`make demo`: how restored prefixes without draft KV ruin speculation, and how the patched runtime mends it.

On real parts and without a GPU. A KV connector (tests/connectors/target_only_connector.py) keeps prompts in files and
restores the target's KV alone, as a store does that a node without the drafter filled. What the drafter finds in those
blocks is noise, laid there beforehand, which stands for what other requests leave in a pool that was used for long.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live_server import ENGINE_ARGS, TOOL, LiveServer, live_server, offline_environment
from tests.measured_server import Server
from tests.paths import DFLASH, TARGET
from tests.restoring import Store, connector_environment, long_prompts

PROMPTS = 12
OUTPUT = 48
NOISE = 3.0
INTRODUCTION = """\
A drafter proposes tokens and the target checks them, so that one step may yield several. Tokens whose KV was restored
and not computed are new to the drafter: what it reads of them is whatever lay in their blocks. This shows, on two
servers one after the other (several minutes on two cores), what that costs, and what dspark-tool does about it. The
models, the engine and the connector are real. One thing is arranged: the restored blocks hold noise where the
drafter's KV would be, which stands for the leftovers of other requests in a pool that was used for long."""
LOOK_EVERY_S = 2
FINE, FINDING, TOO_LITTLE = 0, 1, 4
"""Exit codes: a collapsed profile is a finding, and a slow machine drafts too little for one."""


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="dspark-demo-"))
    store = Store(folder / "store")
    store.folder.mkdir()
    target, drafter = os.path.relpath(TARGET), os.path.relpath(DFLASH)

    print(INTRODUCTION, flush=True)
    say("The KV cache that vLLM makes for a small target and its DFlash drafter, in 1 GiB")
    tool("inspect-cache", "--model", target, "--draft", drafter, "--", *ENGINE_ARGS)

    say("With --draft-context off, as vLLM by itself. Cold prompts first: a KV connector keeps the target's KV of them")
    with restoring_server(folder, store, "off") as server:
        complete(server, "cold")
        tool("acceptance", "--url", server.url, fine=(FINE, TOO_LITTLE))
        say("The same prompts again, restored from the connector: draft acceptance collapses")
        stock = profile_of_restored(server, folder / "stock.json")

    say("The same connector, the same traffic, with the patched runtime (dspark-tool serve does that by default)")
    with restoring_server(folder, store, "validity") as server:
        patched = profile_of_restored(server, folder / "patched.json")

    say("What to serve this pair with, and why")
    tool("recommend", target, "--draft", drafter, "--concurrency", "4")

    say("Before (A) and after (B)")
    page = folder / "report.html"
    tool("acceptance", "diff", str(stock), str(patched), "--html", str(page), fine=(FINE, TOO_LITTLE))
    print(f"\n{conclusion(stock, patched)}\nthe comparison as a page: {page}", flush=True)


def conclusion(stock: Path, patched: Path) -> str:
    before, after = (_acceptance_length(file) for file in (stock, patched))
    return (
        f"Of restored prompts a decode step yielded {before:.2f} tokens with --draft-context off, and {after:.2f} "
        "with\n--draft-context validity, dspark-tool serve's own; 1.00 is what no drafter yields."
    )


def _acceptance_length(file: Path) -> float:
    return float(json.loads(file.read_text())["profile"]["mean_acceptance_length"])


@contextmanager
def restoring_server(folder: Path, store: Store, policy: str) -> Iterator[LiveServer]:
    """With noise where the drafter's KV of restored blocks would be."""
    store.keep_and_restore("target")
    environment = connector_environment(policy)
    with live_server(
        folder / f"{policy}.log", faults=True, more_args=store.vllm_args(), more_environment=environment
    ) as server:
        server.plant("stale-noise", NOISE)
        yield server


def profile_of_restored(server: LiveServer, file: Path) -> Path:
    """Keep the profile of the time in which the connector restores the prompts, twice, and print it."""
    before = Server(server.url).counters()
    command = [TOOL, "acceptance", "--url", server.url, "--watch", str(LOOK_EVERY_S), "--json"]
    with (
        file.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=offline_environment()) as watching,
    ):
        time.sleep(2 * LOOK_EVERY_S)
        for turn in ("restored", "restored again"):
            Server(server.url).empty_prefix_cache()
            complete(server, turn)
        time.sleep(2 * LOOK_EVERY_S)
        watching.send_signal(signal.SIGINT)
    restored = Server(server.url).counters().since(before).external_hits
    print(f"{restored:,.0f} tokens were restored by the connector", flush=True)
    tool("acceptance", "--file", str(file), fine=(FINE, FINDING, TOO_LITTLE))
    return file


def complete(server: LiveServer, turn: str) -> None:
    """`turn` names it beside the progress, which a terminal sees in one line and a file at its end."""
    begin = "\r" if sys.stdout.isatty() else ""
    for number, prompt in enumerate(long_prompts(PROMPTS), 1):
        server.complete(prompt, OUTPUT)
        last = number == PROMPTS
        if begin or last:
            print(f"{begin}  {turn}: {number} of {PROMPTS} prompts", end="\n" if last else "", flush=True)


def tool(*arguments: str, fine: tuple[int, ...] = (FINE,)) -> None:
    print(f"$ dspark-tool {' '.join(arguments)}", flush=True)
    code = subprocess.run([TOOL, *arguments], env=offline_environment()).returncode
    if code not in fine:
        sys.exit(f"dspark-tool {arguments[0]} ended with {code}")


def say(what: str) -> None:
    print(f"\n== {what}", flush=True)


if __name__ == "__main__":
    main()
