"""The answering side of `sources.vllm_child`."""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1


class Refused(Exception):
    """The request cannot be met; the message is for the user."""


def answer(respond: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the request, send `respond`'s result or why there is none.

    Stdout is kept for the answer alone: whatever vLLM prints goes to stderr.
    """
    _die_with_parent()
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.load(sys.stdin)
    document: dict[str, Any]
    try:
        document = {"result": respond(request)}
    except SystemExit:
        document = {"refused": "vLLM's argument parser ended, as it does for --help"}
    except Refused as error:
        document = {"refused": str(error)}
    except Exception as error:
        document = {"failed": f"{type(error).__name__}: {error}"}
    with channel:
        json.dump(document, channel)


def _die_with_parent() -> None:
    """Nobody would read the answer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
