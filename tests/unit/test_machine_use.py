"""What others use of the machine is told apart from what the measured server uses."""

import subprocess
import sys
import time

import psutil

from dspark_cli.sources.machine_use import MachineUse

BUSY = "while True: pass"
WATCHED_S = 1.0


def test_what_is_ours_is_not_counted_as_others() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
        ours = [psutil.Process(busy.pid)]
        without_it, with_it = MachineUse(ours), MachineUse([])
        time.sleep(WATCHED_S)
        apart, together = without_it.by_others(ours), with_it.by_others([])
        busy.kill()

    assert apart is not None
    assert together is not None
    assert 0.0 <= apart < together <= 1.0


def test_a_process_that_is_gone_or_came_later_is_taken_as_it_is() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as short:
        gone = psutil.Process(short.pid)
        use = MachineUse([gone])
    time.sleep(0.1)

    assert use.by_others([gone, psutil.Process()]) is not None
