"""Draft acceptance from /metrics of vLLM servers: since their start, or between two scrapes."""

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from dspark_cli.errors import NotFit, ToolError
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind, engine_name
from dspark_cli.facts.traffic import UNKNOWN_TRAFFIC, Traffic
from dspark_cli.sources.server_metrics import Sample, Scrape, metrics_address, scrape

Key = TypeVar("Key")

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTS_BORN = "vllm:spec_decode_num_drafts_created"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TRAFFIC = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_queries": ("vllm:external_prefix_cache_queries_total",),
    "external_hits": ("vllm:external_prefix_cache_hits_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "finished_requests": ("vllm:request_success_total",),
}
"""Metrics of each field of Traffic, the present name first, then that of older releases."""

LARGEST_COUNT = 2**53
"""Above it a float, which is what a sample holds, no longer tells whole numbers apart."""

Engine = tuple[str, str]
"""Model name, engine index."""


@dataclass(frozen=True)
class EngineCounts:
    counted: DraftCounters
    traffic: Traffic = UNKNOWN_TRAFFIC


EngineCounters = dict[Engine, EngineCounts]


@dataclass(frozen=True)
class Snapshot:
    """One server at one moment. `taken_at` is in seconds since 1970."""

    where: str
    taken_at: float
    engines: EngineCounters


def snapshot(url: str, timeout_s: float) -> Snapshot:
    """One fetch of one server's counters; no engine is in it where the server does not speculate.

    Raises:
        NotFit: it does not answer, or its counters cannot be used.
    """
    return snapshot_of(scrape(url, timeout_s))


def snapshot_of(page: Scrape) -> Snapshot:
    """Raises NotFit: the counters cannot be used."""
    return Snapshot(page.url, page.taken_at, read_counters(page))


def snapshots(urls: Sequence[str], timeout_s: float) -> tuple[list[Snapshot], list[str]]:
    """All servers at the same moment; and a note for each that gave none, where another did.

    Raises:
        ToolError: none did; the first one's error.
    """
    addresses = {metrics_address(url): url for url in urls}
    with ThreadPoolExecutor(len(addresses)) as pool:
        answers = list(pool.map(lambda url: _tried(url, timeout_s), addresses.values()))
    taken, same = _distinct([answer for answer in answers if isinstance(answer, Snapshot)])
    failed = [answer for answer in answers if isinstance(answer, ToolError)]
    if not taken:
        raise failed[0]
    silent = [each.where for each in taken if not each.engines and len(urls) > 1]
    notes = [f"left out: {error.what}" for error in failed]
    return taken, [*notes, *same, *(f"{where} runs without speculative decoding" for where in silent)]


def since_start(taken: Sequence[Snapshot], notes: Sequence[str] = ()) -> Recording:
    """All that the engines have counted."""
    return Recording(
        SourceKind.METRICS,
        tuple(each.where for each in taken),
        seconds=None,
        parts=tuple(part for each in taken for part in parts_of(each)),
        speculates=any(each.engines for each in taken),
        notes=tuple(notes),
    )


def parts_of(taken: Snapshot) -> list[EnginePart]:
    return [
        EnginePart(taken.where, *engine, counts.counted, counts.traffic) for engine, counts in taken.engines.items()
    ]


def between(before: Sequence[Snapshot], after: Sequence[Snapshot], notes: Sequence[str] = ()) -> Recording:
    """The difference of two snapshots of the same servers, engine by engine, and beside it all since start.

    Raises:
        NotFit: in the window, more was accepted than drafted.
    """
    then = {each.where: each for each in before}
    both = [(then[each.where], each) for each in after if each.where in then]
    found = [_between(first, last) for first, last in both]
    gone = then.keys() - {each.where for each in after}
    return Recording(
        SourceKind.METRICS,
        tuple(last.where for _, last in both),
        seconds=max((last.taken_at - first.taken_at for first, last in both), default=0.0),
        parts=tuple(part for parts, _ in found for part in parts),
        since_start=tuple(part for _, last in both for part in parts_of(last)),
        speculates=any(last.engines for _, last in both),
        notes=(
            *notes,
            *(note for _, said in found for note in said),
            *(f"{where} is left out: it gave no second snapshot" for where in sorted(gone)),
        ),
    )


def _between(first: Snapshot, last: Snapshot) -> tuple[list[EnginePart], list[str]]:
    """An engine that began in between counts from zero. One that appears with counters of unknown or greater age is
    left out, for its history is not of this window."""
    parts, notes = [], []
    for engine, now in last.engines.items():
        then = first.engines.get(engine)
        # Without a time of birth, only one that was there before and went back surely began anew in between.
        born = now.counted.born
        began_in_between = then is not None if born is None else first.taken_at <= born <= last.taken_at
        if then is not None and not now.counted.began_anew_since(then.counted):
            counted, traffic = now.counted - then.counted, now.traffic - then.traffic
            traffic = UNKNOWN_TRAFFIC if traffic.went_back else traffic.plausible
            parts.append(EnginePart(last.where, *engine, _plausible(counted), traffic))
        elif began_in_between:
            parts.append(EnginePart(last.where, *engine, now.counted, now.traffic, restarted=then is not None))
        else:
            why = "its counters are not those of the first scrape, nor born since"
            notes.append(f"{engine_name(*engine)} is left out: {why}")
    for engine in sorted(first.engines.keys() - last.engines):
        notes.append(f"{engine_name(*engine)} is left out: it is gone by the second scrape")
    return parts, notes


def read_counters(page: Scrape) -> EngineCounters:
    """The counters of every engine that speculates in `page`.

    Raises:
        NotFit: a counter is no whole number or there twice, a position is missing, or more was accepted than drafted.
    """
    totals: dict[Engine, dict[str, int]] = {}
    positions: dict[Engine, dict[int, int]] = {}
    for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED):
        for sample in page.named(name):
            _enter(totals.setdefault(_engine(sample.labels), {}), name, sample)
    for sample in page.named(ACCEPTED_AT):
        _enter(positions.setdefault(_engine(sample.labels), {}), _position(sample.labels), sample)
    born = {_engine(sample.labels): sample.value for sample in page.named(DRAFTS_BORN) if math.isfinite(sample.value)}
    traffic = read_traffic(page)
    return {
        engine: EngineCounts(
            _plausible(
                DraftCounters(
                    counted.get(DRAFTS, 0),
                    counted.get(DRAFT_TOKENS, 0),
                    counted.get(ACCEPTED, 0),
                    _by_position(positions.get(engine, {})),
                    born.get(engine),
                )
            ),
            traffic.get(engine, UNKNOWN_TRAFFIC),
        )
        for engine, counted in totals.items()
    }


def read_traffic(page: Scrape) -> dict[Engine, Traffic]:
    """Tokens, prefix hits and preemptions of every engine in `page`; what is no count is left unknown."""
    sums: dict[Engine, dict[str, float]] = {}
    for field, names in TRAFFIC.items():
        name = next((name for name in names if any(page.named(name))), names[0])
        for sample in page.named(name):
            counts = sums.setdefault(_engine(sample.labels), {})
            counts[field] = counts.get(field, 0) + sample.value
    return {
        engine: Traffic(**{field: int(count) for field, count in counts.items() if _is_count(count)}).plausible
        for engine, counts in sums.items()
    }


def _distinct(taken: Sequence[Snapshot]) -> tuple[list[Snapshot], list[str]]:
    """Each server once, whatever it was called: counters that were created at the same moment are the same ones."""
    kept: dict[object, Snapshot] = {}
    notes = []
    for each in taken:
        born = frozenset((engine, counts.counted.born) for engine, counts in each.engines.items())
        known = bool(born) and all(at is not None for _, at in born)
        first = kept.setdefault(born if known else id(each), each)
        if first is not each:
            notes.append(f"{each.where} is the server at {first.where}, and counted once")
    return list(kept.values()), notes


def _tried(url: str, timeout_s: float) -> Snapshot | ToolError:
    try:
        return snapshot(url, timeout_s)
    except NotFit as error:
        return error


def _engine(labels: dict[str, str]) -> Engine:
    return labels.get("model_name", ""), labels.get("engine", "0")


def _position(labels: dict[str, str]) -> int:
    position = labels.get("position", "")
    if not re.fullmatch("[0-9]{1,4}", position):
        raise _unusable(f"{ACCEPTED_AT} has position {position[:20]!r}")
    return int(position)


def _enter(counts: dict[Key, int], key: Key, sample: Sample) -> None:
    """Two samples of one engine differ in a label that vLLM does not write, such as an aggregator's pod."""
    if key in counts:
        raise _unusable(f"{sample.name} is there twice for {engine_name(*_engine(sample.labels))}")
    if not _is_count(sample.value):
        raise _unusable(f"{sample.name} is {sample.value}, not a count")
    counts[key] = int(sample.value)


def _is_count(value: float) -> bool:
    return 0 <= value <= LARGEST_COUNT and value == int(value)


def _by_position(counts: dict[int, int]) -> tuple[int, ...]:
    for at in range(len(counts)):
        if at not in counts:
            raise _unusable(f"{ACCEPTED_AT} has no position {at}")
    return tuple(counts[at] for at in range(len(counts)))


def _plausible(counted: DraftCounters) -> DraftCounters:
    if why := counted.implausible():
        raise _unusable(why)
    return counted


def _unusable(why: str) -> NotFit:
    return NotFit(
        f"the server's speculative counters cannot be used: {why}",
        "scrape the server itself, not an aggregator or a proxy that merges servers",
    )
