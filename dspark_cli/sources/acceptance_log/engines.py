"""What each engine counted, whichever processes counted for it."""

import re
from dataclasses import dataclass

from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.recording import EnginePart
from dspark_cli.sources.acceptance_log.bounds import MOST_KEPT, remember

_ENGINE = re.compile(r"(?:Engine (?P<engine>\d{1,6})|(?P<many>\d{1,6}) Engines Aggregated): Avg prompt throughput: ")
_OTHERS = ("", "", "others")


@dataclass
class _Lane:
    """What one process counted for one engine, and where in the log: the numbers of its first and last line."""

    model: str
    process: str
    engine: str
    first: int
    last: int
    counted: DraftCounters = NOTHING

    def take_over(self, later: "_Lane") -> None:
        self.counted += later.counted
        self.last, self.process = later.last, later.process


class Engines:
    """An engine is named by the line before that on its drafts."""

    def __init__(self) -> None:
        self.aggregated = False
        """Whether a server prints the counts of its engines together."""
        self._engine_of: dict[str, str] = {}
        self._lanes: dict[tuple[str, str, str], _Lane] = {}
        self._lines = 0

    def name(self, process: str, message: str) -> None:
        """The engine, if the message names one, for which the process counts from here on."""
        if found := _ENGINE.match(message):
            engine = str(int(found["engine"])) if found["engine"] else f"{int(found['many'])} aggregated"
            remember(self._engine_of, process, engine)

    def add(self, model: str, process: str, counted: DraftCounters) -> None:
        self._lines += 1
        engine = self._engine_of.get(process, "0")
        self.aggregated |= engine.endswith("aggregated")
        key = (model, process, engine)
        if key not in self._lanes and len(self._lanes) >= MOST_KEPT:
            key = _OTHERS
        lane = self._lanes.setdefault(key, _Lane(*key, first=self._lines, last=self._lines))
        lane.counted += counted
        lane.last = self._lines

    def parts(self, where: str) -> tuple[tuple[EnginePart, ...], int]:
        """A part for each engine, and how often one began anew: a process took over where the last one had ended.

        Processes that count for the same engine at the same time are of different servers. `where` is the log's name.
        """
        servers: dict[tuple[str, str], list[_Lane]] = {}
        restarts = 0
        for lane in sorted(self._lanes.values(), key=lambda lane: lane.first):
            alike = servers.setdefault((lane.model, lane.engine), [])
            ended = next((other for other in alike if other.last < lane.first), None)
            if ended is None:
                alike.append(lane)
            else:
                ended.take_over(lane)
                restarts += 1
        return tuple(part for alike in servers.values() for part in _parts_of(alike, where)), restarts


def _parts_of(servers: list[_Lane], where: str) -> list[EnginePart]:
    """Of servers that are alike, each is named by its process."""
    several = len(servers) > 1
    return [
        EnginePart(f"{where} ({lane.process.strip()})" if several else where, lane.model, lane.engine, lane.counted)
        for lane in servers
    ]
