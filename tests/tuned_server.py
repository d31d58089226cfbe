"""A candidate's server in a process of its own, cheap enough to start by the dozen: `python -m tests.tuned_server PORT
TOKENS NAME` speaks as vLLM does, and drafts so many tokens a step. NAME is for whoever looks for its process."""

import sys
import time

from tests.drafting_server import DraftingServer

STEP_S = 0.002
TOKEN_S = 0.001


def main() -> None:
    port, tokens = map(int, sys.argv[1:3])
    with DraftingServer(drafted=tokens, delay_s=STEP_S + TOKEN_S * tokens).serving(port):
        print("Application startup complete", flush=True)  # noqa: T201
        time.sleep(600)


if __name__ == "__main__":
    main()
