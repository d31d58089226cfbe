"""The answering side of `sources.vllm_child`."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any


class Refused(Exception):
    """The request cannot be met; the message is for the user."""


def answer(respond: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the request, send `respond`'s result or why there is none.

    Stdout is kept for the answer alone: whatever vLLM prints goes to stderr.
    """
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.load(sys.stdin)
    document: dict[str, Any]
    try:
        document = {"result": respond(request)}
    except Refused as error:
        document = {"refused": str(error)}
    except Exception as error:
        document = {"failed": f"{type(error).__name__}: {error}"}
    with channel:
        json.dump(document, channel)
