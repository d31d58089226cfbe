"""The runs of each process in a log, from one start to the next."""

from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.sources.acceptance_log.bounds import remember


class Runs:
    """A new process id shows a restart too, but older releases write none."""

    def __init__(self) -> None:
        self.restarts = 0
        self._total: dict[str, DraftCounters] = {}
        self._counting: dict[str, None] = {}

    def begin(self, process: str) -> None:
        self._total.pop(process, None)
        if process in self._counting:
            del self._counting[process]
            self.restarts += 1

    def counts(self, process: str) -> None:
        """Its next start is a restart."""
        remember(self._counting, process, None)

    def since_last(self, process: str, total: DraftCounters) -> DraftCounters:
        """What was counted since the last total of this run. A total that went back is of a new one."""
        if total.began_anew_since(self._total.get(process, NOTHING)):
            self.begin(process)
        since = total - self._total.get(process, NOTHING)
        remember(self._total, process, total)
        return since
