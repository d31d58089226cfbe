"""Draft acceptance over a range of time, from a Prometheus server or one that speaks its HTTP API.

The samples of the counters are asked for as they are, and their differences taken here: rate() and increase()
extrapolate, so their results are no counts.
"""

import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from dspark_cli.errors import BadInput, CannotSay, NotFit, ToolError
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.sources.acceptance_metrics import DRAFTS
from dspark_cli.sources.bounded_get import collected, get, within
from dspark_cli.sources.counter_history import EngineSamples, History, history_of, trend_of
from dspark_cli.sources.counter_series import METRICS, CounterSeries
from dspark_cli.sources.server_metrics import metrics_address, without_credentials

if TYPE_CHECKING:
    import httpx

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
LONGEST_DURATION = 10 * 365 * UNITS["d"]
FEWER_POINTS = "ask for fewer points: a larger --step or a shorter --query-range"
GIVE_PROMETHEUS = (
    "give the address of a Prometheus server, with its path prefix if it has one: --prometheus http://127.0.0.1:9090"
)
IS_IT_RUNNING = "check host and port in --prometheus URL; is Prometheus running?"
TOKEN_VARIABLE = "PROMETHEUS_TOKEN"

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|[smhdw])")
_PAGES = re.compile(r"/(?:api/v1/query(?:_range)?|api/v1|(?:classic/)?graph|query|targets|alerts|vmui)$")
"""What of an address is not its prefix: the API itself, or a page that was copied from a browser."""
_TOO_MUCH = re.compile(
    r"maximum resolution|too many (?:points|samples)|exceeds .{0,80}(?:points|samples)|timeout|timed out", re.I
)


def parse_duration(text: str) -> float:
    """Seconds of 30s, 15m, 1h, 2d, 1h30m; a bare number is seconds.

    Raises:
        BadInput: it is none of that, or zero, or more than ten years.
    """
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) == text and parts:
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    elif re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text):
        seconds = float(text)
    else:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_DURATION:
        raise BadInput(
            f"{text[:40]!r} is no length of time", "give --query-range and --step such as 30s, 15m, 1h or 2d"
        )
    return seconds


def read_prometheus(url: str, since_s: float, step_s: float, model: str | None, timeout_s: float) -> Recording:
    """What every engine counted in the last `since_s` seconds, from samples `step_s` seconds apart.

    `url` may hold a path prefix, credentials and a query, which are used and not shown. Without credentials in it, the
    bearer token in the environment variable PROMETHEUS_TOKEN is sent, if that is set. `model` is a served model name;
    None means every one.

    Raises:
        BadInput: not an http(s) URL, lengths of time that make no range, or a token that can be none.
        NotFit: nobody answers, it is no Prometheus, it refuses, or no vLLM with speculative decoding is in the range.
        CannotSay: each engine has one sample only.
    """
    if not 0 < step_s <= since_s <= LONGEST_DURATION:
        raise BadInput(
            "--step is longer than --query-range, or one of them is no length of time",
            "give a shorter --step or a longer --query-range",
        )
    server = _Server.at(url, timeout_s)
    # So many whole steps that the last one is now.
    end = time.time()
    start = end - math.floor(since_s / step_s) * step_s
    answer = server.matrix(_query(model), start, end, step_s)
    counters = CounterSeries(
        "give --prometheus the URL of one that scrapes vLLM itself, not of one that aggregates its metrics"
    )
    for series in answer.series:
        values = ((at, _number(text)) for at, text in series.values)
        counters.take(series.metric.get("__name__", ""), series.metric, values)
    engines = counters.engines()
    if not engines:
        raise _no_engine(server, counters.saw_vllm, model, start, end)
    return _recording(server.shown, engines, start, step_s, [*answer.notes, *counters.notes])


def _recording(
    shown: str, engines: Iterable[EngineSamples], since: float, step_s: float, notes: Iterable[str]
) -> Recording:
    histories, twice = _each_once(history_of(samples, since, step_s) for samples in engines)
    told = [history for history in histories if history.stretches]
    if not told:
        names = ", ".join(each.samples.name for each in histories[:3])
        raise CannotSay(
            f"{shown} has too few samples of {names} in this range: a difference takes two",
            "ask for a longer --query-range, or a smaller --step",
        )
    return Recording(
        SourceKind.PROMETHEUS,
        (shown,),
        seconds=max(each.end for each in told) - min(each.begin for each in told),
        parts=tuple(each.part for each in told),
        trend=trend_of(told),
        since_start=tuple(each.since_start for each in told),
        notes=(
            *notes,
            *twice,
            *(note for each in told for note in each.notes),
            *(f"{each.samples.name} is left out: it has one sample" for each in histories if not each.stretches),
        ),
    )


def _each_once(histories: Iterable[History]) -> tuple[list[History], list[str]]:
    """Without the engines that are there twice, as two scrape jobs or two Prometheus replicas make them.

    Counters of one birth are one engine's. The copy with more samples is kept.
    """
    kept: list[History] = []
    notes = []
    for history in sorted(histories, key=lambda each: -len(each.stretches)):
        twin = next((each for each in kept if _is_twin(each, history)), None)
        if twin is None:
            kept.append(history)
        else:
            notes.append(
                f"{history.samples.name} is left out: it is the same engine as the one at {twin.samples.where}"
            )
    return sorted(kept, key=lambda each: each.samples.name), notes


def _is_twin(one: History, other: History) -> bool:
    born, there = set(one.samples.born.values()), set(other.samples.born.values())
    if (one.samples.model, one.samples.engine) != (other.samples.model, other.samples.engine) or not born & there:
        return False
    mine, theirs = one.samples.drafts, other.samples.drafts
    return bool(mine and theirs) and min(mine) <= max(theirs) and min(theirs) <= max(mine)


@dataclass(frozen=True)
class _Series:
    metric: dict[str, str]
    values: list[tuple[float, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Matrix:
    series: Sequence[_Series]
    notes: Sequence[str]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf  # no count, and refused as such


def _query(model: str | None) -> str:
    chosen = [f'__name__=~"{"|".join(METRICS)}"']
    if model is not None:
        chosen.append(f"model_name={json.dumps(model, ensure_ascii=False)}")
    return f"{{{','.join(chosen)}}}"


def _no_engine(server: "_Server", saw_vllm: bool, model: str | None, start: float, end: float) -> ToolError:
    if saw_vllm:
        return NotFit(
            f"in this range the vLLM servers that {server.shown} scrapes did not speculate",
            "ask for a --query-range in which a drafter ran; dspark-tool serve MODEL --draft DRAFT starts one",
        )
    others = server.models(start, end) if model is not None else []
    if others:
        names = ", ".join(repr(name[:80]) for name in others[:5])
        return NotFit(
            f"{server.shown} has no speculating vLLM with this model name in this range",
            f"give --model one that it has: {names}",
        )
    return NotFit(
        f"{server.shown} has no vLLM with speculative decoding in this range",
        "see in its /targets whether it scrapes the vLLM servers, or ask for a longer --query-range",
    )


@dataclass(frozen=True)
class _Server:
    """`prefix` is the address without /api/v1, `shown` that for display; `parameters` are sent with every request."""

    prefix: str
    parameters: str
    shown: str
    timeout_s: float

    @classmethod
    def at(cls, url: str, timeout_s: float) -> "_Server":
        try:
            metrics_address(url)
        except BadInput as refusal:
            raise BadInput(refusal.what, GIVE_PROMETHEUS) from None
        parts = urlsplit(url)
        path = parts.path.rstrip("/")
        prefix = _PAGES.sub("", path)
        from_browser = prefix != path and "/api" not in path[len(prefix) :]
        address = parts._replace(path=prefix, query="", fragment="").geturl()
        return cls(address, "" if from_browser else parts.query, without_credentials(address), timeout_s)

    def matrix(self, query: str, start: float, end: float, step_s: float) -> _Matrix:
        """Raises NotFit."""
        from pydantic import TypeAdapter, ValidationError

        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_s:.3f}"}
        answer = self._ask("query_range", {"query": query, **times})
        try:
            series = TypeAdapter(list[_Series]).validate_python(_inside(answer, "data", "result"))
        except ValidationError:
            raise self._no_prometheus() from None
        return _Matrix(series, _warnings(answer))

    def models(self, start: float, end: float) -> list[str]:
        """Names of the models that speculated; none where the server does not tell."""
        match = {"match[]": DRAFTS, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        try:
            names = self._ask("label/model_name/values", match).get("data")
        except ToolError:
            return []
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def _ask(self, what: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        try:
            query = "&".join(filter(None, [self.parameters, urlencode(parameters)]))
        except UnicodeEncodeError:
            raise BadInput("the model's name has characters that no text has", "give --model the served name") from None
        address = f"{self.prefix}/api/v1/{what}?{query}"
        headers = _authorization()

        def asked() -> dict[str, Any]:
            return get(address, self.shown, self.timeout_s, self._answer, headers, IS_IT_RUNNING)

        return within(self.timeout_s, self.shown, asked)

    def _answer(self, response: "httpx.Response") -> dict[str, Any]:
        from pydantic_core import from_json

        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise NotFit(f"{self.shown} answers in an encoding that was not asked for", GIVE_PROMETHEUS)
        body = collected(response.iter_bytes(), self.shown, FEWER_POINTS)
        if response.status_code in (401, 403):
            raise NotFit(
                f"{self.shown} answers {response.status_code}: it wants credentials",
                f"export {TOKEN_VARIABLE}=TOKEN, to be sent as a bearer token, or put user and password into the URL, "
                "--prometheus http://USER:PASSWORD@HOST; a proxy in front may want other ones",
            )
        try:
            answer = from_json(body)
        except ValueError:
            answer = None
        if isinstance(answer, dict) and answer.get("status") == "error":
            raise self._refused(answer)
        if response.status_code != 200:
            raise NotFit(f"{self.shown} answers {response.status_code}, as no Prometheus does", GIVE_PROMETHEUS)
        if answer is None and body.startswith(b'{"status":'):
            raise NotFit(f"{self.shown} sent an answer that was cut short", f"try again, or {FEWER_POINTS}")
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise self._no_prometheus()
        return answer

    def _refused(self, answer: Mapping[str, Any]) -> NotFit:
        kind, why = str(answer.get("errorType", ""))[:40], str(answer.get("error", ""))
        next_step = (
            FEWER_POINTS if kind == "timeout" or _TOO_MUCH.search(why) else "see the server's own log for the reason"
        )
        return NotFit(f"{self.shown} refuses the query ({kind!r}): {_shortened(why)!r}", next_step)

    def _no_prometheus(self) -> NotFit:
        return NotFit(f"{self.shown} answers, but not as a Prometheus server does", GIVE_PROMETHEUS)


def _authorization() -> dict[str, str]:
    """The header with the user's token. httpx prefers credentials in the URL, and takes neither to another host."""
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return {}
    if not re.fullmatch("[!-~]+", token):  # not repeated, as httpx would do
        raise BadInput(f"what {TOKEN_VARIABLE} holds can be no token", "see that it has no space and no line break")
    return {"Authorization": f"Bearer {token}"}


def _inside(answer: object, *keys: str) -> object:
    for key in keys:
        answer = answer.get(key) if isinstance(answer, dict) else None
    return answer


def _shortened(text: str) -> str:
    """Both ends: a server quotes the query before it says what is wrong with it."""
    return text if len(text) <= 240 else f"{text[:80]} ... {text[-150:]}"


def _warnings(answer: Mapping[str, Any]) -> list[str]:
    """What the server says of an answer that may lack something: a store that did not answer, for one."""
    said = answer.get("warnings")
    notes = [f"the server warns: {str(each)[:200]}" for each in said[:3]] if isinstance(said, list) else []
    if answer.get("isPartial") is True:
        notes.append("the server warns: the answer is partial, a storage node did not answer")
    return notes
