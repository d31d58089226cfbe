"""Draft acceptance from a vLLM log: the lines that vLLM writes every ten seconds, in the words of 0.5 to 0.33."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import BinaryIO, TypeVar

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.draft_counters import NOTHING, DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind, TrendPoint
from dspark_cli.facts.trend import Trend

Value = TypeVar("Value")

LONGEST_LINE = 1 << 16
MOST_ENGINES = 1024
MOST_POSITIONS = 256
MOST_TRIES = 1 << 14
"""Numbers of draft steps that are tried on one line, times its positions: a made-up line must not take long."""
LONGEST_NAME = 200
OUT_OF_ORDER_S = 60.0
"""Processes write into one log in their own time; a line this little older than the last is no clock set back."""

_WORTH_READING = re.compile(
    rb"(?:SpecDecoding|Speculative|DiffusionDecoding) metrics: |"
    rb"Avg prompt throughput: |non-default args: |Initializing a"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CARRIER = re.compile(
    r"(?P<container>\[pod/[^\]]{1,200}\] |[\w.-]{1,64} +\| )?"
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) )?"
)
"""What docker compose and kubectl put in front of a line."""
_LINE = re.compile(
    r"(?:\((?P<process>[\w .-]{1,80} pid=\d{1,10})\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<wall>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,6})? "
    r"\[?(?:[^\]\s:]{0,200}/)?(?P<file>\w{1,60})\.py:\d{1,6}\] (?P<message>.*)"
)
"""A message counts only at its own place and from its own file: a request's text may quote one."""

_NUMBER = r"(?:\d{1,9}\.\d{1,3}|nan|inf)"
_DRAFTS = re.compile(
    rf"SpecDecoding metrics: (?:Draft acceptance rate: (?P<rate_first>{_NUMBER})%, )?"
    rf"(?:Mean acceptance length: (?P<length>{_NUMBER}), )?"
    rf"(?:Accepted throughput: {_NUMBER} tokens/s, Drafted throughput: {_NUMBER} tokens/s, )?"
    r"Accepted: (?P<accepted>\d{1,11}) tokens, Drafted: (?P<drafted>\d{1,11}) tokens"
    rf"(?:, Per-position acceptance rate: (?P<rates>{_NUMBER}(?:, {_NUMBER}){{0,{MOST_POSITIONS - 1}}}))?"
    rf"(?:, Avg Draft acceptance rate: (?P<rate_last>{_NUMBER})%)?\s*"
)
_V0_DRAFTS = re.compile(
    rf"Speculative metrics: Draft acceptance rate: (?P<rate>{_NUMBER}), System efficiency: {_NUMBER}, "
    r"Number of speculative tokens: (?P<positions>\d{1,3}), Number of accepted tokens: (?P<accepted>\d{1,15}), "
    r"Number of draft tokens(?: tokens)?: (?P<drafted>\d{1,15}), "
    r"Number of emitted tokens(?: tokens)?: (?P<emitted>\d{1,15})\.\s*"
)
_ENGINE = re.compile(r"(?:Engine (?P<engine>\d{1,6})|(?P<many>\d{1,6}) Engines Aggregated): Avg prompt throughput: ")
_STARTS = re.compile(r"Initializing an? (?:V\d )?LLM engine \(")
_MODEL_SAYS = (
    re.compile(r"'served_model_name': \['([^']*)'"),
    re.compile(r"served_model_name=([^,]*),"),
    re.compile(r"'model(?:_tag)?': '([^']*)'"),
    re.compile(r"with config: model='([^']*)'"),
)
_POSITIONS_SAY = re.compile(r"(?:'num_speculative_tokens': |num_spec_tokens=)(\d{1,3})\b")
_SPECULATES = re.compile(r"'speculative_config': \{|speculative_config=SpeculativeConfig")
_DOES_NOT_SPECULATE = re.compile(r"speculative_config=None")


def read_acceptance_log(lines: BinaryIO, name: str) -> Recording:
    """What the log `lines` says of draft acceptance, of all engines and starts of the server in it, added up.

    One pass in constant memory. `name` is what the log is called in the recording and in messages. Accepted and
    drafted tokens are exact; draft steps and tokens by position are worked out from rounded figures, and
    Recording.exact says whether other numbers would have been printed alike.

    Raises:
        BadInput: the log cannot be read.
        CannotSay: no line in it counts drafts, or none that can be used.
    """
    log = _AcceptanceLog(name)
    try:
        for line in _lines(lines):
            log.read(line)
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror or error}", "give the log of a vLLM server") from None
    return log.recording()


@dataclass(frozen=True)
class _Server:
    """What a start of the server says of itself; `positions` are the tokens that it drafts a step."""

    model: str = ""
    positions: int | None = None


@dataclass
class _Lane:
    """What one process counted for one engine, and where in the log: the numbers of its first and last line."""

    model: str
    process: str
    engine: str
    first: int
    last: int
    counted: DraftCounters = NOTHING


@dataclass
class _Tally:
    """Lines on drafts by what became of them."""

    used: int = 0
    ambiguous: int = 0
    unreadable: int = 0
    contradictory: int = 0
    without_steps: int = 0
    tokens_without_steps: int = 0
    steps_assumed: int = 0
    of_v0: int = 0
    of_diffusion: int = 0
    aggregated: int = 0
    restarts: int = 0
    positions: set[int] = field(default_factory=set)

    @property
    def seen(self) -> int:
        return self.used + self.unreadable + self.contradictory + self.without_steps


class _AcceptanceLog:
    """Adds up what a log's lines count."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tally = _Tally()
        self._clock = _Clock()
        self._trend = Trend()
        self._lanes: dict[tuple[str, str, str], _Lane] = {}
        self._engine_of: dict[str, str] = {}
        self._server_of: dict[str, _Server] = {}
        self._last_server = _Server()
        self._cumulative: dict[str, DraftCounters] = {}
        self._speculates: bool | None = None
        self._counting: dict[str, None] = {}

    def read(self, text: str) -> None:
        line = _LogLine.of(text)
        if line is None:
            return
        if line.message.startswith("non-default args: ") or _STARTS.match(line.message):
            self._start(line)
        elif line.file not in ("metrics", "loggers"):
            return
        elif engine := _ENGINE.match(line.message):
            name = str(int(engine["engine"])) if engine["engine"] else f"{int(engine['many'])} aggregated"
            _remember(self._engine_of, line.process, name)
        elif line.message.startswith("SpecDecoding metrics: "):
            self._count(line)
        elif line.message.startswith("Speculative metrics: "):
            self._count_v0(line)
        elif line.message.startswith("DiffusionDecoding metrics: "):
            self._tally.of_diffusion += 1

    def _start(self, line: "_LogLine") -> None:
        said = _Server(_model_in(line.message), _positions_in(line.message))
        _remember(self._server_of, line.process, said)
        self._last_server = _Server(
            said.model or self._last_server.model,
            said.positions if _STARTS.match(line.message) else said.positions or self._last_server.positions,
        )
        if _SPECULATES.search(line.message):
            self._speculates = True
        elif _DOES_NOT_SPECULATE.search(line.message):
            self._speculates = self._speculates or False
        self._began_anew(line.process)

    def _began_anew(self, process: str) -> None:
        """With a new process id it is seen by that; older releases write none."""
        self._cumulative.pop(process, None)
        if process in self._counting:
            del self._counting[process]
            self._tally.restarts += 1

    def _server(self, process: str) -> _Server:
        """A server's start is told by the API server and by its engine; the lines on drafts come from the first."""
        own, last = self._server_of.get(process, _Server()), self._last_server
        return _Server(own.model or last.model, own.positions or last.positions)

    def _count(self, line: "_LogLine") -> None:
        found = _DRAFTS.fullmatch(line.message)
        if found is None:
            self._tally.unreadable += 1
            return
        figures = _Figures.of(found)
        if figures is None:
            self._tally.contradictory += 1
            return
        if not figures.tells_steps:
            self._count_without_rates(figures, line)
            return
        worked_out = figures.worked_out()
        if worked_out is None:
            self._tally.contradictory += 1
            return
        self._tally.ambiguous += not worked_out.unique
        self._add(worked_out.counted, line)

    def _count_without_rates(self, figures: "_Figures", line: "_LogLine") -> None:
        positions = self._server(line.process).positions
        if not positions:
            self._tally.without_steps += 1
            self._tally.tokens_without_steps += figures.drafted
            return
        self._tally.steps_assumed += 1
        steps = -(-figures.drafted // positions)
        self._add(DraftCounters(steps, figures.drafted, figures.accepted, ()), line)

    def _count_v0(self, line: "_LogLine") -> None:
        found = _V0_DRAFTS.fullmatch(line.message)
        if found is None:
            self._tally.unreadable += 1
            return
        total = _v0_total(found)
        if total is None:
            self._tally.contradictory += 1
            return
        self._tally.of_v0 += 1
        if total.began_anew_since(self._cumulative.get(line.process, NOTHING)):
            self._began_anew(line.process)
        since = total - self._cumulative.get(line.process, NOTHING)
        _remember(self._cumulative, line.process, total)
        self._add(since, line)

    def _add(self, counted: DraftCounters, line: "_LogLine") -> None:
        self._tally.used += 1
        if counted.accepted_at:
            self._tally.positions.add(len(counted.accepted_at))
        engine = self._engine_of.get(line.process, "0")
        self._tally.aggregated += engine.endswith("aggregated")
        _remember(self._counting, line.process, None)
        lane = self._lane(self._server(line.process).model, line.process, engine)
        lane.counted += counted
        lane.last = self._tally.used
        self._trend.add(TrendPoint(line.moment.at, self._clock.seconds_until(line.moment), counted))

    def _lane(self, model: str, process: str, engine: str) -> _Lane:
        key = (model, process, engine)
        if key not in self._lanes and len(self._lanes) >= MOST_ENGINES:
            key = ("", "", "others")
        return self._lanes.setdefault(key, _Lane(*key, first=self._tally.used, last=self._tally.used))

    def recording(self) -> Recording:
        """Raises CannotSay where no line could be used."""
        if not self._tally.used:
            raise self._cannot_say()
        parts, restarts = _parts(list(self._lanes.values()), self._name)
        self._tally.restarts += restarts
        unsure = self._tally.ambiguous + self._tally.steps_assumed
        return Recording(
            source=SourceKind.LOG,
            where=(self._name,),
            seconds=self._clock.total or None,
            parts=parts,
            trend=self._trend.points,
            exact=not unsure,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        tally = self._tally
        if tally.ambiguous:
            yield (
                f"on {tally.ambiguous} of {_lines_on_drafts(tally.used)}, draft steps or tokens by position are worked "
                "out from rounded figures: they agree with all that is printed, so rates by position are within 0.0005 "
                "and mean lengths within 0.005 of the engine's on each line; tokens accepted and drafted are exact"
            )
        if tally.steps_assumed:
            yield (
                f"on {tally.steps_assumed} of {_lines_on_drafts(tally.used)}, of a vLLM that prints no draft steps, "
                "these are taken as drafted over speculative tokens: too few where drafts were shorter"
            )
        if tally.of_v0:
            yield (
                "vLLM V0 also counts tokens as accepted that come after a rejected one; here accepted are the tokens "
                "that it emitted, less one a draft step"
            )
        if tally.restarts:
            yield f"the server began anew {_times(tally.restarts)} in the log; the counts of its runs are added up"
        if tally.aggregated:
            yield "the server prints the counts of its engines together, so none is seen by itself"
        if len(tally.positions) > 1:
            lengths = ", ".join(map(str, sorted(tally.positions)))
            yield f"the number of draft positions changes in the log ({lengths}); rates are over all draft steps"
        if self._clock.set_back:
            yield f"the log's clock was set back {_times(self._clock.set_back)}; the span is without these stretches"
        yield from self._left_out()

    def _left_out(self) -> Iterator[str]:
        tally = self._tally
        if tally.contradictory:
            yield f"left out: {_lines_on_drafts(tally.contradictory)} with figures that contradict each other"
        if tally.unreadable:
            yield f"left out: {_lines_on_drafts(tally.unreadable)}, cut short or mixed with other text"
        if tally.without_steps:
            yield (
                f"left out: {_lines_on_drafts(tally.without_steps)}, {tally.tokens_without_steps} drafted tokens; "
                "neither they nor the server's start before them tell how many tokens a draft step has"
            )
        if tally.of_diffusion:
            yield f"left out: what {_lines_on_drafts(tally.of_diffusion, 'denoising')} count; these are no drafts"

    def _cannot_say(self) -> CannotSay:
        wait = "send it requests and wait for vLLM's statistics, every 10 s; --disable-log-stats must not be given"
        if self._tally.seen:
            return CannotSay(f"{self._name}: {'; '.join(self._left_out())}", "give the whole log, as vLLM wrote it")
        if self._tally.of_diffusion:
            return CannotSay(
                f"{self._name} is of a diffusion model: it has denoising steps and no drafts",
                "give the log of a server with a draft model",
            )
        if self._speculates:
            return CannotSay(f"{self._name} shows a server that speculates, but no line on its drafts", wait)
        if self._speculates is False:
            return CannotSay(
                f"{self._name} shows a server without speculative decoding",
                "start it with --speculative-config, or give the log of one that was",
            )
        return CannotSay(
            f"{self._name} has no line of vLLM's on drafts, and none on the server's start that tells if it speculates",
            f"give the log of a vLLM server in vLLM's own format; {wait}",
        )


def _parts(lanes: list[_Lane], name: str) -> tuple[tuple[EnginePart, ...], int]:
    """A part for each engine, and how often one began anew: a process took over where the last one had ended.

    Processes that count for the same engine at the same time are of different servers.
    """
    servers: dict[tuple[str, str], list[_Lane]] = {}
    restarts = 0
    for lane in sorted(lanes, key=lambda lane: lane.first):
        alike = servers.setdefault((lane.model, lane.engine), [])
        ended = next((other for other in alike if other.last < lane.first), None)
        if ended is None:
            alike.append(lane)
        else:
            restarts += 1
            ended.counted, ended.last, ended.process = ended.counted + lane.counted, lane.last, lane.process
    return (
        tuple(
            EnginePart(name if len(alike) == 1 else f"{name} ({lane.process.strip()})", model, engine, lane.counted)
            for (model, engine), alike in servers.items()
            for lane in alike
        ),
        restarts,
    )


@dataclass(frozen=True)
class _WorkedOut:
    """`unique`: no other counts would have been printed alike."""

    counted: DraftCounters
    unique: bool


@dataclass(frozen=True)
class _Figures:
    """What a line prints. Nothing in it but the two counts is exact.

    `length` is tokens accepted a draft step, in hundredths; `rates` are the shares of steps that accepted at each
    position, in thousandths, and empty where nothing was drafted, or where the line is of a vLLM without them.
    """

    accepted: int
    drafted: int
    length: int = 0
    rates: tuple[int, ...] = ()

    @classmethod
    def of(cls, found: re.Match[str]) -> "_Figures | None":
        """None where the line contradicts itself in what can be seen at once."""
        accepted, drafted = int(found["accepted"]), int(found["drafted"])
        rate = found["rate_first"] or found["rate_last"]
        if accepted > drafted or (rate and not _is_rate(rate, accepted, drafted)):
            return None
        if not found["length"] or not found["rates"]:
            return cls(accepted, drafted)
        if "nan" in found["length"] or "inf" in found["length"]:
            return None if accepted or drafted else cls(0, 0)
        if "n" in found["rates"]:
            return None
        rates = tuple(round(float(rate) * 1000) for rate in found["rates"].split(", "))
        length = round(float(found["length"]) * 100)
        # vLLM 0.8 does not count the target's own token; the rates add up to the length without it.
        if length >= 100 and abs(length - 100 - sum(rates) / 10) <= abs(length - sum(rates) / 10):
            length -= 100
        never_rises = all(before >= here for before, here in pairwise((1000, *rates)))
        return cls(accepted, drafted, length, rates) if never_rises else None

    @property
    def tells_steps(self) -> bool:
        return bool(self.rates) or self.drafted == 0

    def worked_out(self) -> _WorkedOut | None:
        """Counts that agree with every figure: drafted over positions where that does, else the likeliest.

        None where no counts agree.
        """
        if not self.rates:
            return _WorkedOut(NOTHING, True)
        chosen: tuple[int, tuple[int, ...]] | None = None
        for tries, steps in enumerate(self._likely_steps()):
            if tries * len(self.rates) > MOST_TRIES:
                return chosen and self._result(*chosen, unique=False)
            bounds = self._bounds_at(steps)
            if bounds is None:
                continue
            if chosen is not None:
                return self._result(*chosen, unique=False)
            accepted_at, unique = _shared_out(self.accepted, *bounds)
            if not unique:
                return self._result(steps, accepted_at, unique=False)
            chosen = steps, accepted_at
        return chosen and self._result(*chosen, unique=True)

    def _result(self, steps: int, accepted_at: tuple[int, ...], unique: bool) -> _WorkedOut:
        return _WorkedOut(DraftCounters(steps, self.drafted, self.accepted, accepted_at), unique)

    def _likely_steps(self) -> Iterator[int]:
        """Every number of draft steps that the mean length and the sum of the rates leave, the likeliest first.

        A step drafts as many tokens as there are positions, at most. It may draft none: a grammar can rule all out.
        """
        accepted, total = self.accepted, sum(self.rates)
        whole = -(-self.drafted // len(self.rates))
        least_rates = sum(max(0, 2 * rate - 1) for rate in self.rates)
        low = max(
            1,
            whole,
            -(-200 * accepted // (2 * self.length + 1)),
            -(-2000 * accepted // (2 * total + len(self.rates))),
            # Rates that are all rounded to zero hold a token each once there are two thousand steps.
            0 if total else 2000 * -(-accepted // len(self.rates)),
        )
        highs = [
            number * accepted // least
            for number, least in ((200, 2 * self.length - 1), (2000, least_rates))
            if least > 0
        ]
        if not highs:
            yield from (low, low + 1)  # no upper bound
            return
        high = min(highs)
        if low <= whole <= high:
            yield whole
        middle = min(max(round(1000 * accepted / total) if total else low, low), high)
        for distance in range(max(high - middle, middle - low) + 1):
            for steps in {middle - distance, middle + distance}:
                if low <= steps <= high and steps != whole:
                    yield steps

    def _bounds_at(self, steps: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The least and most accepted at each position after `steps` draft steps, None where a figure disagrees.

        A figure that lies half-way may have been rounded to either side.
        """
        if abs(200 * self.accepted - 2 * self.length * steps) > steps:
            return None
        least = tuple(max(0, -((1 - 2 * rate) * steps // 2000)) for rate in self.rates)
        most = tuple(min(steps, (2 * rate + 1) * steps // 2000) for rate in self.rates)
        if any(low > high for low, high in zip(least, most, strict=True)):
            return None
        return (least, most) if sum(least) <= self.accepted <= sum(most) else None


def _shared_out(accepted: int, least: tuple[int, ...], most: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Numbers between `least` and `most` that add up to `accepted`, and whether they are the only ones.

    Neither bound rises from position to position, and so neither do the numbers.
    """
    room = sum(most) - sum(least)
    over = accepted - sum(least)
    free = sum(high > low for low, high in zip(least, most, strict=True))
    if not room:
        return least, True
    shared = [(low * (room - over) + high * over) // room for low, high in zip(least, most, strict=True)]
    missing = accepted - sum(shared)
    for at, high in enumerate(most):
        if missing and shared[at] < high:
            shared[at] += 1
            missing -= 1
    return tuple(shared), free == 1 or over in (0, room)


def _v0_total(found: re.Match[str]) -> DraftCounters | None:
    """What V0 counted since its start: every step drafts all positions and emits one token beside the accepted."""
    positions, accepted, drafted, emitted = (
        int(found[name]) for name in ("positions", "accepted", "drafted", "emitted")
    )
    if not positions or drafted % positions or accepted > drafted:
        return None
    if drafted and not _agrees(found["rate"], accepted / drafted, 0.0005):
        return None
    steps = drafted // positions
    if not 0 <= emitted - steps <= accepted:
        return None
    return DraftCounters(steps, drafted, emitted - steps, ())


def _is_rate(percent: str, accepted: int, drafted: int) -> bool:
    return _agrees(percent, accepted / drafted * 100, 0.05) if drafted else percent == "nan"


def _agrees(printed: str, value: float, reach: float) -> bool:
    return abs(float(printed) - value) <= reach + 1e-9


@dataclass(frozen=True)
class _Moment:
    """When a line was written: `at` in seconds since 1970 where it says so, `wall` by a clock of unknown zone.

    `has_year` where the clock tells it.
    """

    at: float | None = None
    wall: datetime | None = None
    has_year: bool = False

    def seconds_after(self, earlier: "_Moment") -> float | None:
        """Below zero where this is the earlier one; within half a year where a year is not told."""
        if self.at is not None and earlier.at is not None:
            return self.at - earlier.at
        if self.wall is None or earlier.wall is None:
            return None
        if self.has_year and earlier.has_year:
            return (self.wall - earlier.wall).total_seconds()
        leaps = any((wall.month, wall.day) == (2, 29) for wall in (self.wall, earlier.wall))
        mine, theirs = (wall.replace(year=2024) for wall in (self.wall, earlier.wall))
        if not leaps:
            mine, theirs = mine.replace(year=2023), theirs.replace(year=2023)
        year = 86_400 * (366 if leaps else 365)
        return ((mine - theirs).total_seconds() + year / 2) % year - year / 2


class _Clock:
    """Adds up the time from line to line; never goes back."""

    def __init__(self) -> None:
        self.total = 0.0
        self.set_back = 0
        self._last: _Moment | None = None

    def seconds_until(self, moment: _Moment) -> float | None:
        """Seconds since the line before, None where they are not known."""
        if moment.at is None and moment.wall is None:
            return None
        step = moment.seconds_after(self._last) if self._last is not None else None
        if step is None or step >= 0:
            self._last = moment
            self.total += step or 0
            return step
        if step >= -OUT_OF_ORDER_S:
            return 0.0
        self._last = moment
        self.set_back += 1
        return None


@dataclass(frozen=True)
class _LogLine:
    """A message of vLLM's, the Python file that it comes from, and the process, with its container where told."""

    process: str
    file: str
    message: str
    moment: _Moment

    @classmethod
    def of(cls, text: str) -> "_LogLine | None":
        """None for what is no line in vLLM's format, as text or JSON."""
        text = _COLOUR.sub("", text)
        carrier = _CARRIER.match(text)
        stamp, container = (carrier["stamp"], carrier["container"]) if carrier else (None, None)
        rest = text[carrier.end() :] if carrier else text
        at = _since_1970(stamp.strip()) if stamp else None
        container = _printable(container.strip(" |[]") + " ") if container else ""
        if rest.startswith("{"):
            return cls._of_json(rest, container, at)
        found = _LINE.search(rest)
        if found is None:
            return None
        moment = _Moment(at, *_wall(found["wall"]))
        return cls(container + (found["process"] or ""), found["file"], found["message"], moment)

    @classmethod
    def _of_json(cls, text: str, container: str, at: float | None) -> "_LogLine | None":
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(told, dict) or not all(isinstance(told.get(key), str) for key in ("name", "message")):
            return None
        process = _printable(f"{told.get('processName')} pid={told.get('process')}")
        moment = _Moment(at, *_wall(str(told.get("asctime"))[:19]))
        return cls(container + process, told["name"].rpartition(".")[2], told["message"], moment)


def _wall(text: str) -> tuple[datetime | None, bool]:
    """The clock's time of "11-29 15:04:22" or "2026-11-29 15:04:22", and whether it has a year."""
    has_year = text[4:5] == "-"
    try:
        return datetime.strptime(text if has_year else f"2024-{text}", "%Y-%m-%d %H:%M:%S"), has_year
    except ValueError:
        return None, False


def _since_1970(stamp: str) -> float | None:
    try:
        return (datetime.fromisoformat(stamp) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None


def _model_in(message: str) -> str:
    """The name under which the model is served, else its path; anyone's text, so short and printable."""
    for says in _MODEL_SAYS:
        if found := says.search(message):
            return _printable(found[1])
    return ""


def _lines_on_drafts(count: int, what: str = "drafts") -> str:
    return f"{count} line{'s' * (count != 1)} on {what}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:LONGEST_NAME])


def _positions_in(message: str) -> int | None:
    found = _POSITIONS_SAY.search(message)
    return int(found[1]) if found else None


def _remember(table: dict[str, Value], key: str, value: Value) -> None:
    """Keeps the latest MOST_ENGINES keys."""
    table.pop(key, None)
    if len(table) >= MOST_ENGINES:
        del table[next(iter(table))]
    table[key] = value


def _lines(log: BinaryIO) -> Iterator[str]:
    """Lines of at most LONGEST_LINE bytes that may matter; what is beyond that of a longer one is passed over."""
    at_start = True
    while part := log.readline(LONGEST_LINE):
        if at_start and _WORTH_READING.search(part):
            yield part.decode("utf-8", errors="replace").rstrip("\r\n")
        at_start = part.endswith(b"\n")
