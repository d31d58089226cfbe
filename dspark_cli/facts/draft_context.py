"""What a server says of its draft context: the policy on restored tokens, what became of them, and how drafts fare by
how many tokens were restored."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from dspark_cli.facts.draft_counters import NOTHING, DraftCounters

VALIDITY, RESTORED, OFF = "validity", "restored", "off"
"""Policies: hide what is stale, hide all that is restored, hide nothing."""


@dataclass(frozen=True)
class ContextCounters:
    """Of one worker, in tokens except for `admissions`: requests admitted with restored tokens.

    A restored token's draft KV is valid where it was written from the request's own prefix. Hidden ones the drafter
    does not read, zeroed ones it reads as zero.
    """

    admissions: int = 0
    restored_tokens: int = 0
    valid_tokens: int = 0
    hidden_tokens: int = 0
    zeroed_tokens: int = 0

    def __add__(self, other: "ContextCounters") -> "ContextCounters":
        return self._combined(other, 1)

    def __sub__(self, other: "ContextCounters") -> "ContextCounters":
        return self._combined(other, -1)

    def _combined(self, other: "ContextCounters", sign: int) -> "ContextCounters":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return ContextCounters(*(mine + sign * theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class WorkerContext:
    """One worker's patched runtime. `witness` is how it tells valid slots from stale ones, `draft_backends` the
    attention backends of its draft layers, where it says.

    One that is not active and has no `inactive_reason` waits for its first draft step.
    """

    rank: int
    policy: str
    active: bool
    counters: ContextCounters
    engine: int = 0
    witness: str | None = None
    inactive_reason: str | None = None
    draft_backends: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"engine {self.engine} rank {self.rank}"


@dataclass(frozen=True)
class RestoredBucket:
    """Draft steps of requests with `restored_from` to `restored_to` restored tokens, the end not included."""

    restored_from: int
    restored_to: int | None
    counted: DraftCounters

    @property
    def name(self) -> str:
        if self.restored_to is None:
            return f"{self.restored_from:,} or more"
        last = self.restored_to - 1
        return f"{self.restored_from:,}" if last == self.restored_from else f"{self.restored_from:,} to {last:,}"


@dataclass(frozen=True)
class DraftContext:
    """One server's, of all engines behind it; counts are since its start, or over a window."""

    policy: str
    """As the server was told; several, where workers differ."""
    workers: tuple[WorkerContext, ...]
    buckets: tuple[RestoredBucket, ...] = ()
    """Sums over all engines; empty where the server does not count them."""
    not_counted: str | None = None
    """Why `buckets` is empty, where it is."""

    @property
    def counters(self) -> ContextCounters:
        """Each engine once, for the ranks of an engine count the same."""
        first_ranks = {worker.engine: worker for worker in reversed(self.workers)}
        return sum((worker.counters for worker in first_ranks.values()), ContextCounters())

    @property
    def active(self) -> bool:
        return bool(self.workers) and all(worker.active for worker in self.workers)

    @property
    def inactive_reasons(self) -> tuple[str, ...]:
        reasons = (worker.inactive_reason for worker in self.workers if not worker.active)
        return tuple(dict.fromkeys(reason for reason in reasons if reason))

    @property
    def differing(self) -> tuple[WorkerContext, ...]:
        """The ranks of engines whose ranks do not all say the same, which they should."""
        said: dict[int, set[object]] = {}
        for worker in self.workers:
            said.setdefault(worker.engine, set()).add((worker.policy, worker.active, worker.counters))
        return tuple(worker for worker in self.workers if len(said[worker.engine]) > 1)

    @property
    def counted(self) -> DraftCounters:
        return sum((bucket.counted for bucket in self.buckets), NOTHING)


@dataclass(frozen=True)
class ServerContext:
    """`where` is the server's URL, for display. `restarted`: it began anew within the window."""

    where: str
    context: DraftContext
    restarted: bool = False


def over_window(before: DraftContext, after: DraftContext) -> tuple[DraftContext, bool]:
    """What was counted from `before` to `after`, and whether the server began anew in between: then it is all of
    `after`."""
    then = {(worker.engine, worker.rank): worker for worker in before.workers}
    buckets_then = {bucket.restored_from: bucket for bucket in before.buckets}
    workers = tuple(
        replace(worker, counters=worker.counters - earlier.counters)
        if (earlier := then.get((worker.engine, worker.rank)))
        else worker
        for worker in after.workers
    )
    buckets = tuple(
        replace(bucket, counted=bucket.counted - before_that.counted)
        if (before_that := buckets_then.get(bucket.restored_from))
        else bucket
        for bucket in after.buckets
    )
    went_back = any(min(astuple(worker.counters)) < 0 for worker in workers)
    if went_back or any(_went_back(bucket.counted) for bucket in buckets):
        return after, True
    return replace(after, workers=workers, buckets=buckets), False


def buckets_of(servers: Iterable[ServerContext]) -> tuple[RestoredBucket, ...]:
    """The buckets of all `servers` together, in order."""
    totals: dict[tuple[int, int | None], DraftCounters] = {}
    for server in servers:
        for bucket in server.context.buckets:
            span = bucket.restored_from, bucket.restored_to
            totals[span] = totals.get(span, NOTHING) + bucket.counted
    ordered = sorted(totals, key=lambda span: (span[0], span[1] is None, span[1] or 0))
    return tuple(RestoredBucket(*span, totals[span]) for span in ordered)


def _went_back(counted: DraftCounters) -> bool:
    return min(counted.drafts, counted.draft_tokens, counted.accepted, 0, *counted.accepted_at) < 0
