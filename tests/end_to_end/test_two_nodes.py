"""One server on two nodes of one rank each, on this host: both ranks draft and hide alike, step by step."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.ranks import Phase, cold_warm_stale
from tests.live_server import ENGINE_ARGS, FAULTS, LiveServer, free_port, offline_environment, wait_until_it_answers
from tests.measured_server import Server, long_prompts
from tests.paths import DFLASH, TARGET, TESTS

TOKENS = 24


@contextmanager
def server_on_two_nodes(log: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.ranks_on_one_gpu", str(TARGET), str(DFLASH), "--port", str(port), "--"]
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS / "faults")])
    with log.open("w") as output:
        nodes = subprocess.Popen(
            [*command, *ENGINE_ARGS, *FAULTS, "--distributed-executor-backend", "mp"],
            env={**offline_environment(), "VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": paths},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    live = LiveServer(f"http://127.0.0.1:{port}", nodes, log)
    try:
        wait_until_it_answers(live, log)
        yield Server(live.url)
    finally:
        live.stop()


def alike(phase: Phase) -> bool:
    return phase.ranks == 2 and phase.ranks_equal and phase.counters_equal


def test_ranks_on_two_nodes_draft_and_hide_alike(tmp_path: Path) -> None:
    with server_on_two_nodes(tmp_path / "log") as server:
        cold, warm, stale = cold_warm_stale(server, long_prompts(3, 3), TOKENS, "")

    assert [alike(phase) for phase in (cold, warm, stale)] == [True, True, True]
    assert cold.counted["restored_tokens"] == 0
    assert warm.counted["valid_tokens"] == warm.hits > 0
    assert stale.counted["hidden_tokens"] == stale.hits > 0
    assert stale.acceptance_length > 1.5
