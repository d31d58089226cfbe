"""Ask a program of `dspark_cli.inside_vllm`, which runs in a process of its own."""

import json
import os
import subprocess
import sys
from typing import Any

from dspark_cli.errors import BadInput, NotFit
from dspark_cli.sources.vllm_advice import next_step_for
from dspark_cli.sources.vllm_install import VllmInstall
from dspark_cli.sources.vllm_log import cause_of_death

LONGEST_S = 300.0


def ask_vllm(program: str, request: dict[str, Any], install: VllmInstall, stand_in: bool = False) -> dict[str, Any]:
    """The answer of `dspark_cli.inside_vllm.<program>`; costs vLLM's import, 5 to 30 s.

    `stand_in`: the program will take this machine for another platform than it is.

    Raises:
        BadInput: vLLM refuses the request.
        NotFit: the process failed or took longer than five minutes.
    """
    environment = {**os.environ, **install.added_environment(stand_in), "VLLM_NO_USAGE_STATS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", f"dspark_cli.inside_vllm.{program}"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        raise NotFit(f"vLLM did not answer within {LONGEST_S:g} s", "is the machine out of memory?") from None
    answer = _document(done.stdout)
    if answer is None:
        cause = " ".join(cause_of_death(done.stderr.splitlines())) or f"exit code {done.returncode}"
        raise NotFit(f"vLLM {install.version} failed: {cause}", "see what is installed: dspark-tool doctor")
    if "refused" in answer:
        refusal = str(answer["refused"])
        raise BadInput(refusal, next_step_for(refusal) or "change the arguments; vLLM's own: vllm serve --help=all")
    if "failed" in answer:
        raise NotFit(f"vLLM {install.version} failed: {answer['failed']}", "see what is installed: dspark-tool doctor")
    result: dict[str, Any] = answer["result"]
    return result


def _document(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
