"""compute-sanitizer over a quick sweep, in a process of its own."""

import os
import re
import shutil
import subprocess
import sys

from dspark_cli.errors import NotFit
from dspark_cli.stress.verdict import SanitizerVerdict

TOOLS = ("memcheck", "racecheck")
LONGEST_S = 240.0
USUAL_PLACE = "/usr/local/cuda/bin/compute-sanitizer"
FOUND_ERRORS = 97
"""The exit code that compute-sanitizer is told to end with where it found errors."""


def sanitize(seed: int) -> list[SanitizerVerdict]:
    """memcheck and racecheck on the kernels' quick sweep. racecheck sees hazards in shared memory only; races in the
    block table itself, which is global memory, are the control's business.

    Raises:
        NotFit: there is no compute-sanitizer.
    """
    program = shutil.which("compute-sanitizer") or shutil.which(USUAL_PLACE)
    if program is None:
        raise NotFit("there is no compute-sanitizer here", "install the CUDA toolkit, or leave --sanitize out")
    return [_run(program, tool, seed) for tool in TOOLS]


def _run(program: str, tool: str, seed: int) -> SanitizerVerdict:
    sweep = [
        sys.executable,
        "-P",
        "-m",
        "dspark_cli",
        "stress-shift",
        "--quick",
        "--iterations",
        "1",
        "--seed",
        str(seed),
    ]
    command = [program, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS), *sweep, "--no-control", "--json"]
    # A pool would hide accesses beyond a tensor's end, so every tensor gets an allocation of its own.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return SanitizerVerdict(tool, None, f"did not finish within {LONGEST_S:g} s")
    return _verdict(tool, done.returncode, done.stdout + done.stderr)


def _verdict(tool: str, exit_code: int, output: str) -> SanitizerVerdict:
    summaries = re.findall(r"=+ ((?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard).*)", output)
    if not summaries or exit_code not in (0, FOUND_ERRORS):
        last = next((line for line in reversed(output.splitlines()) if line.strip()), f"exit code {exit_code}")
        return SanitizerVerdict(tool, None, f"did not finish: {last.strip()}")
    summary, errors = summaries[-1]
    return SanitizerVerdict(tool, int(errors), summary)
