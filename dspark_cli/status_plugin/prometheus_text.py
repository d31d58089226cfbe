"""Patches and counters as Prometheus text, in a registry of their own: vLLM's is not touched."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

WORKER_COUNTERS = {
    "admissions": "Requests admitted with restored tokens",
    "restored_tokens": "Tokens whose KV was restored, not computed, at an admission",
    "valid_tokens": "Restored tokens whose draft KV was found valid",
    "hidden_tokens": "Restored tokens hidden from the drafter",
    "zeroed_tokens": "Restored tokens whose stale draft KV was zeroed",
}
BUCKET_COUNTERS = {
    "draft_steps": "Draft steps, by the tokens restored of their request",
    "draft_tokens": "Tokens drafted, by the tokens restored of their request",
    "accepted_tokens": "Draft tokens accepted, by the tokens restored of their request",
}


class _Held(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def prometheus_text(patches: Sequence[Mapping[str, str]], counters: Mapping[str, Any]) -> bytes:
    """Both as they are in the status. What is unsupported there has no sample here."""
    registry = CollectorRegistry(auto_describe=False)
    acceptance = counters.get("acceptance", {})
    families = [
        *_of_patches(patches),
        *_of_workers(counters.get("workers", ())),
        *_of_buckets(acceptance.get("buckets", ())),
    ]
    registry.register(_Held(families))
    return generate_latest(registry)


def _of_patches(patches: Sequence[Mapping[str, str]]) -> Iterator[Metric]:
    info = GaugeMetricFamily("dspark_patch_info", "How a patch stands on this vLLM", labels=["name", "status"])
    for patch in patches:
        info.add_metric([patch["name"], patch["status"]], 1)
    yield info


def _of_workers(workers: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    place = ["engine", "rank"]
    info = GaugeMetricFamily("dspark_draft_context_info", "The policy in force", labels=[*place, "policy", "witness"])
    active = GaugeMetricFamily("dspark_draft_context_active", "Whether the patched runtime is at work", labels=place)
    for worker in workers:
        info.add_metric([*_place(worker), str(worker["policy"]), str(worker.get("witness") or "")], 1)
        active.add_metric(_place(worker), float(bool(worker["active"])))
    yield from (info, active, _patches_on(workers))
    for name, meaning in WORKER_COUNTERS.items():
        family = CounterMetricFamily(f"dspark_draft_context_{name}", meaning, labels=place)
        for worker in workers:
            family.add_metric(_place(worker), worker[name])
        yield family


def _patches_on(workers: Sequence[Mapping[str, Any]]) -> Metric:
    on = GaugeMetricFamily(
        "dspark_patch_on", "Whether a patch that was asked for is on in a worker", labels=["name", "engine", "rank"]
    )
    for worker in workers:
        for value, names in ((1, worker.get("patches", ())), (0, worker.get("failed_patches", ()))):
            for name in names:
                on.add_metric([name, *_place(worker)], value)
    return on


def _of_buckets(buckets: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    for name, meaning in BUCKET_COUNTERS.items():
        family = CounterMetricFamily(f"dspark_draft_acceptance_{name}", meaning, labels=["restored_from"])
        for bucket in buckets:
            family.add_metric([str(bucket["restored_from"])], bucket[name])
        yield family
    by_position = CounterMetricFamily(
        "dspark_draft_acceptance_accepted_tokens_per_pos",
        "Draft tokens accepted at a position, by the tokens restored of their request",
        labels=["restored_from", "position"],
    )
    for bucket in buckets:
        for position, accepted in enumerate(bucket["accepted_per_position"]):
            by_position.add_metric([str(bucket["restored_from"]), str(position)], accepted)
    yield by_position


def _place(worker: Mapping[str, Any]) -> list[str]:
    return [str(worker["engine"]), str(worker["rank"])]
