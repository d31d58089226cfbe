"""How much of this machine others use while a server is measured: their work is in its times."""

import contextlib
from collections.abc import Iterable

import psutil


class MachineUse:
    """Between its making and `by_others`."""

    def __init__(self, ours: Iterable[psutil.Process]) -> None:
        self._before = {process: _seconds(process) for process in ours}
        self._all, self._busy = _of_machine()

    def by_others(self, ours: Iterable[psutil.Process]) -> float | None:
        """Share (0 to 1) of the machine's CPU time since then that was neither idle nor used by `ours`; None where the
        system does not tell."""
        passed, busy = (now - before for now, before in zip(_of_machine(), (self._all, self._busy), strict=True))
        own = sum(_seconds(process) - self._before.get(process, 0.0) for process in ours)
        return max(0.0, min(1.0, (busy - own) / passed)) if passed > 0 else None


def _of_machine() -> tuple[float, float]:
    """CPU seconds of all cores since boot, and those that were not idle."""
    times = psutil.cpu_times()._asdict()
    counted = {name: value for name, value in times.items() if name not in ("guest", "guest_nice")}  # in user already
    idle = counted.get("idle", 0.0) + counted.get("iowait", 0.0)
    total = sum(counted.values())
    return total, total - idle


def _seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        used = process.cpu_times()
        return float(used.user + used.system)
    return 0.0
