"""Times of each request in the result file of a benchmark: those that `vllm bench serve --save-detailed`, aiperf (its
profile_export.jsonl) and guidellm write."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dspark_cli.errors import NotFit
from dspark_cli.facts.tuning import AnsweredRequest
from dspark_cli.sources.bench_results.counts import cut_short, seconds, unusable
from dspark_cli.sources.bench_results.documents import read_documents

MILLISECONDS = 1000.0
NANOSECONDS = 1e9
DIGITS = 6
PHASE = "profiling"
LARGEST_TIME = 1 << 63


@dataclass(frozen=True)
class RequestTimes:
    """`seconds` is from the first request's start to the last one's end."""

    requests: tuple[AnsweredRequest, ...]
    failed: tuple[str, ...]
    seconds: float


def read_request_times(content: bytes, name: str, prompts: Sequence[str] = ()) -> RequestTimes:
    """`prompts` are those that were sent, in their order: guidellm lists requests as they ended, and tells each by its
    text alone.

    Raises:
        NotFit: it is no such result, or its figures are none.
    """
    documents = read_documents(content)
    if documents.broken:
        raise cut_short(name)
    first: Mapping[str, Any] = documents.objects[0] if documents.objects else {}
    if "ttfts" in first and "itls" in first:
        return _of_vllm(first)
    if "benchmarks" in first:
        return _of_guidellm(first, prompts)
    if "metadata" in first and "metrics" in first:
        return _of_aiperf(documents.objects)
    raise NotFit(f"{name} holds no times of requests", "is it of another release of its tool? try --load builtin")


def _of_vllm(result: Mapping[str, Any]) -> RequestTimes:
    columns = [result.get(name) for name in ("ttfts", "itls", "output_lens", "errors")]
    ttfts, itls, lengths, errors = (column if isinstance(column, list) else [] for column in columns)
    if not len(ttfts) == len(itls) == len(lengths):
        raise unusable("its requests have no times each")
    requests: list[AnsweredRequest] = []
    failed: list[str] = []
    for number, (ttft, gaps, tokens) in enumerate(zip(ttfts, itls, lengths, strict=True)):
        error = errors[number] if number < len(errors) else ""
        if error or not tokens:
            failed.append(str(error)[:200] or "no token")
            continue
        first = _number(ttft)
        requests.append(_request(number, first, first + sum(map(_number, gaps)), tokens))
    return RequestTimes(tuple(requests), tuple(failed), _duration(result.get("duration")))


def _of_aiperf(lines: Sequence[Mapping[str, Any]]) -> RequestTimes:
    requests: list[AnsweredRequest] = []
    failed: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    for line in lines:
        metadata, metrics = line["metadata"], line.get("metrics")
        if not isinstance(metadata, dict) or metadata.get("benchmark_phase", PHASE) != PHASE:
            continue
        if line.get("error") or not isinstance(metrics, dict):
            failed.append(str(line.get("error"))[:200])
            continue
        begins.append(_nanoseconds(metadata.get("request_start_ns")))
        ends.append(_nanoseconds(metadata.get("request_end_ns")))
        number = metadata.get("session_num")
        tokens = _metric(metrics, "output_sequence_length")
        ttft, total = (_metric(metrics, name) / MILLISECONDS for name in ("time_to_first_token", "request_latency"))
        requests.append(_request(number if isinstance(number, int) else len(requests), ttft, total, tokens))
    span = (max(ends) - min(begins)) / NANOSECONDS if begins else 0.0
    return RequestTimes(tuple(requests), tuple(failed), _duration(span))


def _of_guidellm(report: Mapping[str, Any], prompts: Sequence[str]) -> RequestTimes:
    numbers = _PromptNumbers(prompts)
    requests: list[AnsweredRequest] = []
    failed: list[str] = []
    begins, ends = [], []
    for request, good in _guidellm_requests(report):
        number = numbers.take(_guidellm_prompt(request))
        if not good:
            failed.append("guidellm counts it as failed")
            continue
        begins.append(_number(request.get("request_start_time")))
        ends.append(_number(request.get("request_end_time")))
        ttft = _number(request.get("time_to_first_token_ms")) / MILLISECONDS
        requests.append(_request(number, ttft, _number(request.get("request_latency")), request.get("output_tokens")))
    return RequestTimes(tuple(requests), tuple(failed), _duration(max(ends) - min(begins) if begins else 0.0))


class _PromptNumbers:
    """Which of the sent prompts a text is; of several alike, each once. A text that was not sent, or not told, gets a
    number of its own."""

    def __init__(self, prompts: Sequence[str]) -> None:
        self._left: dict[str, deque[int]] = {}
        for number, prompt in enumerate(prompts):
            self._left.setdefault(prompt, deque()).append(number)
        self._next = len(prompts)

    def take(self, prompt: str | None) -> int:
        left = self._left.get(prompt) if prompt is not None else None
        if left:
            return left.popleft()
        self._next += 1
        return self._next - 1


def _guidellm_prompt(request: Mapping[str, Any]) -> str | None:
    """From the request's body, which is JSON in JSON."""
    from pydantic_core import from_json

    told = request.get("request_args")
    try:
        arguments = from_json(told) if isinstance(told, str) else told
    except ValueError:
        return None
    body = arguments.get("body") if isinstance(arguments, dict) else None
    prompt = body.get("prompt") if isinstance(body, dict) else None
    return prompt if isinstance(prompt, str) else None


def _guidellm_requests(report: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    for benchmark in report["benchmarks"] if isinstance(report["benchmarks"], list) else ():
        held = benchmark.get("requests") if isinstance(benchmark, dict) else None
        for outcome in ("successful", "errored", "incomplete"):
            found = held.get(outcome) if isinstance(held, dict) else None
            for request in found if isinstance(found, list) else ():
                if isinstance(request, dict):
                    yield request, outcome == "successful"


def _request(prompt: int, ttft_s: float, total_s: float, tokens: object) -> AnsweredRequest:
    count = int(_number(tokens))
    if count < 1:
        raise unusable("a request has no output token")
    return AnsweredRequest(prompt, round(min(ttft_s, total_s), DIGITS), round(total_s, DIGITS), count)


def _metric(metrics: Mapping[str, Any], name: str) -> float:
    held = metrics.get(name)
    return _number(held.get("value") if isinstance(held, dict) else None)


def _number(value: object) -> float:
    found = None if isinstance(value, bool) else seconds(value)
    if found is None or found != found:
        raise unusable("a time of a request is no number")
    return found


def _nanoseconds(value: object) -> int:
    if type(value) is not int or not 0 <= value < LARGEST_TIME:
        raise unusable("a time of a request is no number")
    return value


def _duration(value: object) -> float:
    return round(_number(value), DIGITS)
