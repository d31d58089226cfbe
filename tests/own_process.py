"""Run a test module as a program, in a process of its own: what it changes in vLLM must not stay with other tests."""

import json
import subprocess
import sys
from typing import Any

from tests.live_server import offline_environment
from tests.paths import TESTS

LONGEST_S = 240


def answer_of(module: str, *arguments: str) -> Any:
    """The JSON in the last line that `python -m module` prints; it must end well."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        cwd=TESTS.parent,
        env=offline_environment(),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])
