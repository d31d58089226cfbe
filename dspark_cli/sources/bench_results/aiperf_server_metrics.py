"""What aiperf writes of the server's /metrics: server_metrics_export.json, .csv and .jsonl (and .parquet).

JSON and CSV hold what each counter rose by while the requests were measured; the JSON lines hold every scrape, those
before and after included. aiperf leaves the `_total` out of the counters' names.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.sources.bench_results.counts import cut_short, seconds, unusable
from dspark_cli.sources.bench_results.documents import Documents
from dspark_cli.sources.counter_history import history_of, trend_of
from dspark_cli.sources.counter_series import METRICS, CounterSeries
from dspark_cli.sources.server_metrics import metrics_address, without_credentials

TOOL = "aiperf"
FULL_NAMES = {name.removesuffix("_total"): name for name in METRICS}
NEXT_STEP = "see whether another tool changed it; run the benchmark again"
CSV_COLUMNS = {"Endpoint", "Type", "Metric", "Unit", "total"}
CSV_HEAD = 4096
LABELS_END = "Description"
PARQUET_ENDS = b"PAR1"

Labels = Mapping[str, str]
Series = tuple[str, Labels, list[tuple[float, float]]]
"""Name without _total, labels, values by time."""


def read_aiperf_server_metrics(documents: Documents, content: bytes, name: str) -> Recording | None:
    """None where it is no such file.

    Raises:
        CannotSay: the server did not speculate, or it is the Parquet file, which is not read.
        NotFit: cut short, or its figures contradict each other.
    """
    if content.startswith(PARQUET_ENDS) and b"endpoint_url" in content[-(1 << 20) :]:
        raise CannotSay(
            "Parquet files are not read", "give the server_metrics_export.json or .csv that aiperf writes beside it"
        )
    scrapes = [each for each in documents.objects if _is_scrape(each)]
    if documents.broken and (scrapes or b'"endpoints_configured"' in content):
        raise cut_short(TOOL)
    export = next((each for each in documents.objects if _is_export(each)), None)
    if export is not None:
        return _recording(_of_export(export), _span(export), name, ())
    if scrapes:
        note = "from the first scrape to the last: requests of the warm-up are in it, where there were some"
        return _recording(_of_scrapes(scrapes), None, name, (note,))
    if b"Endpoint,Type,Metric,Unit," in content[:CSV_HEAD]:
        return _recording(_of_csv(content), None, name, ())
    return None


def _recording(series: Iterable[Series], span: float | None, name: str, notes: tuple[str, ...]) -> Recording:
    """`span` is the length of totals, in seconds; None takes it from the scrapes, where there are some."""
    counters = CounterSeries(NEXT_STEP)
    for short_name, labels, values in series:
        counters.take(FULL_NAMES.get(short_name, short_name), labels, values)
    histories = [history_of(samples, math.inf, None) for samples in counters.engines()]
    told = [history for history in histories if history.stretches]
    if not told:
        raise CannotSay(
            "these server metrics of aiperf have no speculative counters, or one scrape only",
            "run the benchmark on a server with a drafter, which dspark-tool serve MODEL --draft DRAFT starts",
        )
    of_totals = all(history.end == TOTALS_END for history in told)
    return Recording(
        SourceKind.BENCHMARK,
        (name,),
        span if of_totals else max(each.end for each in told) - min(each.begin for each in told),
        tuple(history.part for history in told),
        trend=() if of_totals else trend_of(told),
        since_start=() if of_totals else tuple(history.since_start for history in told),
        notes=(*notes, *counters.notes, *(note for history in told for note in history.notes)),
    )


TOTALS_END = 1.0


def _total(value: object) -> list[tuple[float, float]]:
    """What a counter rose by, as a counter that starts at zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise unusable("a total is no number")
    return [(0.0, 0.0), (TOTALS_END, _number(value))]


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _is_export(document: Mapping[str, Any]) -> bool:
    summary = document.get("summary")
    return isinstance(document.get("metrics"), dict) and isinstance(summary, dict) and "endpoints_configured" in summary


def _of_export(export: Mapping[str, Any]) -> Iterator[Series]:
    for name, metric in export["metrics"].items():
        if name not in FULL_NAMES:
            continue
        series = metric.get("series") if isinstance(metric, dict) else None
        for each in series if isinstance(series, list) else ():
            stats = each.get("stats") if isinstance(each, dict) else None
            if isinstance(stats, dict) and "total" in stats:
                yield name, _labels(each.get("labels"), each.get("endpoint_url")), _total(stats["total"])


def _span(export: Mapping[str, Any]) -> float | None:
    phases = export["summary"].get("phase_time_ranges")
    measured = phases.get("profiling") if isinstance(phases, dict) else None
    if not isinstance(measured, dict):
        return None
    start, end = measured.get("start_ns"), measured.get("end_ns")
    return seconds((end - start) / 1e9) if type(start) is type(end) is int and abs(start) + abs(end) < 1 << 63 else None


def _is_scrape(document: Mapping[str, Any]) -> bool:
    return {"endpoint_url", "timestamp_ns", "metrics"} <= document.keys() and isinstance(document["metrics"], dict)


def _of_scrapes(scrapes: Iterable[Mapping[str, Any]]) -> Iterator[Series]:
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = {}
    for scrape in scrapes:
        at = scrape["timestamp_ns"]
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise unusable("a scrape has no time")
        for name in FULL_NAMES.keys() & scrape["metrics"].keys():
            samples = scrape["metrics"][name]
            for sample in samples if isinstance(samples, list) else ():
                value = sample.get("value") if isinstance(sample, dict) else None
                if isinstance(value, int | float):
                    labels = _labels(sample.get("labels"), scrape["endpoint_url"])
                    key = (name, tuple(sorted(labels.items())))
                    values.setdefault(key, []).append((_number(at) / 1e9, _number(value)))
    for (name, pairs), samples in values.items():
        yield name, dict(pairs), samples


def _of_csv(content: bytes) -> Iterator[Series]:
    """A section a type of metric, each with its own header; the counters' has a column `total`."""
    if not content.endswith(b"\n"):
        raise cut_short(TOOL)
    header: list[str] = []
    try:
        for row in csv.reader(content.decode("utf-8", errors="replace").splitlines()):
            if row[:1] == ["Endpoint"]:
                header = row
            elif header and row and len(row) != len(header):
                raise cut_short(TOOL)
            elif row and set(header) >= CSV_COLUMNS:
                cells = dict(zip(header, row, strict=True))
                if cells["Metric"] in FULL_NAMES:
                    labels = {name: value for name, value in _label_cells(header, row) if value}
                    yield cells["Metric"], {**labels, "instance": cells["Endpoint"]}, _total(_cell(cells["total"]))
    except csv.Error:
        raise unusable("it is no CSV") from None


def _label_cells(header: list[str], row: list[str]) -> Iterable[tuple[str, str]]:
    """Statistics have names too; those of counters begin with `rate`."""
    known = CSV_COLUMNS | {"rate", "rate_avg", "rate_min", "rate_max", "rate_std", LABELS_END}
    return ((name, value) for name, value in zip(header, row, strict=True) if name not in known)


def _cell(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _labels(labels: object, endpoint: object) -> dict[str, str]:
    pairs = labels.items() if isinstance(labels, dict) else ()
    told = {name: value for name, value in pairs if isinstance(value, str)}
    return {**told, "instance": _shown(endpoint)}


def _shown(endpoint: object) -> str:
    """The server's address; one that is none may hold a password, so it is not shown."""
    try:
        return without_credentials(metrics_address(str(endpoint)[:1000])).removesuffix("/metrics")
    except BadInput:
        return "a server of the benchmark"
