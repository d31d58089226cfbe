"""What aiperf writes of requests: profile_export_aiperf.json for the run, profile_export.jsonl with a line each."""

from typing import Any

from dspark_cli.errors import CannotSay
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind
from dspark_cli.facts.traffic import UNKNOWN_TRAFFIC, Traffic
from dspark_cli.sources.bench_results.counts import count, cut_short, name_in, seconds, unusable
from dspark_cli.sources.bench_results.documents import Documents
from dspark_cli.sources.bench_results.histogram import Histogram

TOOL = "aiperf"
OF_THE_RUN = {"input_config", "was_cancelled"}
PHASE = "profiling"


def read_aiperf(documents: Documents, content: bytes, name: str) -> Recording | None:
    """None where it is no such file.

    Raises:
        CannotSay: it holds client metrics only.
        NotFit: cut short, or its figures contradict each other.
    """
    if documents.broken and b'"aiperf_version"' in content:
        raise cut_short(TOOL)
    run = next((each for each in documents.objects if each.keys() >= OF_THE_RUN), None)
    if run is not None:
        return _of_run(run, name)
    requests = [each for each in documents.objects if _is_request(each)]
    if not requests:
        return None
    if documents.broken:
        raise cut_short(TOOL)
    return _of_requests(requests, name)


def client_metrics_only(tool: str, next_step: str) -> CannotSay:
    return CannotSay(f"this result of {tool} has client metrics only: nothing of what the server drafted", next_step)


def _of_run(run: dict[str, Any], name: str) -> Recording:
    steps = run.get("pooled_spec_decode_acceptance_histogram")
    if steps is None:
        raise client_metrics_only(
            TOOL,
            "give the server_metrics_export.json that aiperf writes beside it, or start vLLM with "
            "--per-request-spec-decode-metrics summary",
        )
    draft_tokens = count(_average(run, "total_draft_tokens"), "total_draft_tokens")
    histogram = Histogram()
    histogram.add(steps, draft_tokens)
    # Positions at which nothing was accepted are not in the histogram: as many as a step drafts on average there are.
    counted = histogram.counted(-(-draft_tokens // max(1, histogram.steps)))
    for figure, expected in (
        ("total_spec_decode_steps", counted.drafts),
        ("total_accepted_draft_tokens", counted.accepted),
    ):
        if figure in run and count(_average(run, figure), figure) != expected:
            raise unusable(f"its {figure} is not that of its acceptance histogram, {expected}")
    finished = _average(run, "request_count")
    traffic = UNKNOWN_TRAFFIC if finished is None else Traffic(finished_requests=count(finished, "request_count"))
    part = EnginePart(name, _model(run), "all", counted, traffic)
    notes = ["the requests that were measured, without those of the warm-up"]
    if run.get("was_cancelled") is True:
        notes.append("the benchmark was cancelled before its end")
    return Recording(
        SourceKind.BENCHMARK, (name,), seconds(_average(run, "benchmark_duration")), (part,), notes=tuple(notes)
    )


def _of_requests(requests: list[dict[str, Any]], name: str) -> Recording:
    measured = [each for each in requests if each["metadata"].get("benchmark_phase", PHASE) == PHASE]
    told = [each["spec_decode_acceptance"] for each in measured if isinstance(each.get("spec_decode_acceptance"), dict)]
    if not told:
        raise client_metrics_only(
            TOOL,
            "give the server_metrics_export.json that aiperf writes beside it, or start vLLM with "
            "--per-request-spec-decode-metrics summary",
        )
    histogram = Histogram()
    for each in told:
        histogram.add(each.get("acceptance_histogram"), each.get("num_draft_tokens"), each.get("num_spec_tokens"))
    notes = ["the requests that were measured, without those of the warm-up"]
    if len(told) < len(measured):
        notes.append(
            f"{len(measured) - len(told)} of {len(measured)} requests are left out: nothing is said of their drafts"
        )
    part = EnginePart(name, "", "all", histogram.counted(), Traffic(finished_requests=len(told)))
    return Recording(SourceKind.BENCHMARK, (name,), None, (part,), notes=tuple(notes))


def _is_request(document: dict[str, Any]) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and "x_request_id" in metadata and isinstance(document.get("metrics"), dict)


def _average(run: dict[str, Any], figure: str) -> object:
    """aiperf writes a figure of the whole run as its average."""
    held = run.get(figure)
    return held.get("avg") if isinstance(held, dict) else None


def _model(run: dict[str, Any]) -> str:
    """The one model that was asked for; none where there are several."""
    config = run["input_config"]
    models = config.get("models") if isinstance(config, dict) else None
    items = models.get("items") if isinstance(models, dict) else None
    names = [name_in(each.get("name")) for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    return names[0] if len(names) == 1 else ""
