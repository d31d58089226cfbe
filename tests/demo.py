"""`make demo`: cache groups, a live server with a drafter, its acceptance and a probe, on a machine without a GPU."""

import os
import subprocess
import tempfile
from pathlib import Path

from tests.live_server import ENGINE_ARGS, TOOL, LiveServer, live_server, offline_environment, prompts
from tests.paths import DFLASH, TARGET

PROMPTS = 16


def main() -> None:
    models = ["--model", os.path.relpath(TARGET), "--draft", os.path.relpath(DFLASH)]
    say("The KV cache that vLLM makes for a small target and its DFlash drafter, in 1 GiB")
    tool("inspect-cache", *models, "--", *ENGINE_ARGS)

    say("A server with both, on the CPU")
    log = Path(tempfile.mkdtemp(prefix="dspark-demo-")) / "serve.log"
    with live_server(log) as server:
        say(f"{PROMPTS} prompts of Python source, 48 tokens each")
        serve_prompts(server)
        say("How well the drafter did")
        tool("acceptance", "--url", server.url)
        say("Whether restored prefixes hurt its drafts")
        tool("probe", "--url", server.url, "--prompt-count", "8", "--output-tokens", "24", "--shares", "none")
        say("Stopping the server")


def serve_prompts(server: LiveServer) -> None:
    for prompt in prompts()[:PROMPTS]:
        text = server.complete(prompt)
        print(f"  ...{prompt[-32:]!r} -> {text[:32]!r}", flush=True)


def tool(*arguments: str) -> None:
    print(f"$ dspark-tool {' '.join(arguments)}", flush=True)
    subprocess.run([TOOL, *arguments], check=True, env=offline_environment())


def say(what: str) -> None:
    print(f"\n== {what}", flush=True)


if __name__ == "__main__":
    main()
