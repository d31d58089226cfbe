"""What guidellm writes: benchmarks.json, with the requests of each benchmark.

It measures at the client, but keeps what the server says of each request: with vLLM's --per-request-spec-decode-metrics
that is an acceptance histogram.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind, TrendPoint
from dspark_cli.facts.traffic import Traffic
from dspark_cli.facts.trend import Trend
from dspark_cli.sources.bench_results.aiperf import client_metrics_only
from dspark_cli.sources.bench_results.counts import cut_short, name_in, seconds, unusable
from dspark_cli.sources.bench_results.documents import Documents
from dspark_cli.sources.bench_results.histogram import Histogram

TOOL = "guidellm"
OUTCOMES = ("successful", "incomplete", "errored")


def read_guidellm(documents: Documents, content: bytes, name: str) -> Recording | None:
    """None where it is no such file.

    Raises:
        CannotSay: it holds client metrics only.
        NotFit: cut short, or its figures contradict each other.
    """
    if documents.broken and b'""guidellm_version""' in content:
        raise client_metrics_only(
            TOOL, "this is its CSV; give the benchmarks.json that it writes with --output kind=json"
        )
    if documents.broken and b'"guidellm_version"' in content:
        raise cut_short(TOOL)
    report = next((each for each in documents.objects if _is_report(each)), None)
    if report is None:
        return None
    benchmarks = [_benchmark(each) for each in report["benchmarks"] if isinstance(each, dict)]
    told = [(number, each) for number, each in enumerate(benchmarks, start=1) if each.counted.drafts]
    if not told:
        raise client_metrics_only(
            TOOL,
            "start vLLM with --per-request-spec-decode-metrics summary, or measure beside the benchmark: "
            "dspark-tool acceptance --url URL --interval SECONDS",
        )
    return _recording(told, len(benchmarks), _model(report), name)


@dataclass(frozen=True)
class _Benchmark:
    counted: DraftCounters
    requests: int
    """Those that tell of their drafts."""
    silent: int
    """Those that do not, or were not kept."""
    start: float | None
    length: float | None


def _recording(told: list[tuple[int, _Benchmark]], benchmarks: int, model: str, name: str) -> Recording:
    notes = []
    if len(told) < benchmarks:
        notes.append(
            f"{benchmarks - len(told)} of {benchmarks} benchmarks are left out: nothing is said of their drafts"
        )
    if silent := sum(each.silent for _, each in told):
        notes.append(f"{silent} requests are left out: they were not kept, or nothing is said of their drafts")
    trend = Trend()
    for _, each in told:
        end = each.start + each.length if each.start is not None and each.length is not None else None
        trend.add(TrendPoint(end, each.length, each.counted, Traffic(finished_requests=each.requests)))
    lengths = [each.length for _, each in told if each.length is not None]
    return Recording(
        SourceKind.BENCHMARK,
        (name,),
        sum(lengths) if len(lengths) == len(told) else None,
        tuple(
            EnginePart(
                f"{name} benchmark {number}" if benchmarks > 1 else name,
                model,
                "all",
                each.counted,
                Traffic(finished_requests=each.requests),
            )
            for number, each in told
        ),
        trend=trend.points if len(told) > 1 else (),
        notes=tuple(notes),
    )


def _benchmark(benchmark: Mapping[str, Any]) -> _Benchmark:
    requests = benchmark.get("requests")
    histogram, told, kept = Histogram(), 0, 0
    for outcome in OUTCOMES:
        held = requests.get(outcome) if isinstance(requests, dict) else None
        for request in held if isinstance(held, list) else ():
            kept += 1
            drafts = _drafts_of(request)
            if drafts is not None:
                told += 1
                histogram.add(
                    drafts.get("acceptance_histogram"), drafts.get("num_draft_tokens"), drafts.get("num_spec_tokens")
                )
    total = max(kept, _requests_made(benchmark))
    start, length = seconds(benchmark.get("start_time")), seconds(benchmark.get("duration"))
    return _Benchmark(histogram.counted(), told, total - told, start, length)


def _drafts_of(request: object) -> dict[str, Any] | None:
    metrics = request.get("response_metrics") if isinstance(request, dict) else None
    drafts = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if drafts is not None and not isinstance(drafts, dict):
        raise unusable("what a request says of its drafts is no object")
    return drafts


def _requests_made(benchmark: Mapping[str, Any]) -> int:
    """guidellm may keep a sample of the requests only."""
    metrics = benchmark.get("metrics")
    totals = metrics.get("request_totals") if isinstance(metrics, dict) else None
    made = totals.get("total") if isinstance(totals, dict) else None
    return made if type(made) is int and 0 <= made < 1 << 53 else 0


def _is_report(document: Mapping[str, Any]) -> bool:
    metadata = document.get("metadata")
    return (
        isinstance(document.get("benchmarks"), list) and isinstance(metadata, dict) and "guidellm_version" in metadata
    )


def _model(report: Mapping[str, Any]) -> str:
    held: object = report
    for key in ("config", "spec", "backend", "model"):
        held = held.get(key) if isinstance(held, dict) else None
    return name_in(held)
