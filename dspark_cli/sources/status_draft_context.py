"""The part of a server's status on patches and draft context, as it comes, and what is believed of it."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from itertools import pairwise

from dspark_cli.facts.draft_context import ContextCounters, DraftContext, RestoredBucket, WorkerContext
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.server_diagnosis import PatchStatus

MOST_WORKERS = 4096
MOST_BUCKETS = 64
MOST_POSITIONS = 1000
MOST_PATCHES = 256
LARGEST_COUNT = 2**53


@dataclass(frozen=True)
class ToldWorker:
    """What stands behind `inactive_reason` came later than the rest. `failed_patches` has the reasons by name; None
    is what the worker's vLLM does not say."""

    rank: int
    policy: str
    active: bool
    admissions: int
    restored_tokens: int
    valid_tokens: int
    hidden_tokens: int
    zeroed_tokens: int
    engine: int = 0
    witness: str | None = None
    inactive_reason: str | None = None
    patches: tuple[str, ...] = ()
    failed_patches: dict[str, str] = field(default_factory=dict)
    model_runner: str | None = None
    draft_tokens: int | None = None
    draft_layers: int | None = None
    draft_backends: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ToldBucket:
    restored_from: int
    restored_to: int | None
    draft_steps: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]


@dataclass(frozen=True)
class ToldAcceptance:
    """Either `buckets` or `unsupported`, a reason."""

    buckets: tuple[ToldBucket, ...] = ()
    unsupported: str | None = None


@dataclass(frozen=True)
class ToldContext:
    """`unsupported` says why there is nothing else, where there is nothing else."""

    policy: str = ""
    workers: tuple[ToldWorker, ...] = ()
    acceptance: ToldAcceptance = ToldAcceptance()
    unsupported: str | None = None

    @property
    def believed(self) -> DraftContext | None:
        """None where the server cannot tell."""
        if self.unsupported is not None:
            return None
        return DraftContext(
            policy=self.policy,
            workers=tuple(_worker(worker) for worker in self.workers),
            buckets=tuple(_bucket(bucket) for bucket in self.acceptance.buckets),
            not_counted=self.acceptance.unsupported,
        )


def check_length(told: ToldContext | None, patches: tuple[PatchStatus, ...]) -> None:
    """Raises ValueError where something is longer than any server's, before it is looked at closely."""
    if len(patches) > MOST_PATCHES:
        raise ValueError("it has too many patches")
    if told is None:
        return
    if len(told.workers) > MOST_WORKERS:
        raise ValueError("the draft context has too many workers")
    _check_bucket_lengths(len(bucket.accepted_per_position) for bucket in told.acceptance.buckets)


def check_context(context: DraftContext) -> None:
    """Raises ValueError where no server can have counted this."""
    if not context.workers:
        raise ValueError("the draft context has no worker")
    if len(context.workers) > MOST_WORKERS:
        raise ValueError("the draft context has too many workers")
    if len({(worker.engine, worker.rank) for worker in context.workers}) < len(context.workers):
        raise ValueError("a worker is in the draft context twice")
    _check_bucket_lengths(len(bucket.counted.accepted_at) for bucket in context.buckets)
    for worker in context.workers:
        if any(not 0 <= count <= LARGEST_COUNT for count in astuple(worker.counters)):
            raise ValueError("a count of the draft context is negative or absurdly large")
    if any(earlier.restored_to != later.restored_from for earlier, later in pairwise(context.buckets)):
        raise ValueError("the buckets of restored tokens do not follow each other")
    for bucket in context.buckets:
        if bucket.restored_to is not None and bucket.restored_to <= bucket.restored_from:
            raise ValueError("a bucket of restored tokens is empty")
        if bucket.counted.drafts > LARGEST_COUNT or bucket.counted.draft_tokens > LARGEST_COUNT:
            raise ValueError("a count of draft steps is absurdly large")
        if why := bucket.counted.implausible():
            raise ValueError(f"by restored tokens, {why}")


def _check_bucket_lengths(positions: Iterable[int]) -> None:
    counts = list(positions)
    if len(counts) > MOST_BUCKETS:
        raise ValueError("there are too many buckets of restored tokens")
    if any(count > MOST_POSITIONS for count in counts):
        raise ValueError("a bucket of restored tokens has too many positions")


def _worker(told: ToldWorker) -> WorkerContext:
    counted = told.admissions, told.restored_tokens, told.valid_tokens, told.hidden_tokens, told.zeroed_tokens
    return WorkerContext(
        rank=told.rank,
        policy=told.policy,
        active=told.active,
        counters=ContextCounters(*counted),
        engine=told.engine,
        witness=told.witness,
        inactive_reason=told.inactive_reason,
        draft_backends=told.draft_backends or (),
    )


def _bucket(told: ToldBucket) -> RestoredBucket:
    counted = DraftCounters(told.draft_steps, told.draft_tokens, told.accepted_tokens, told.accepted_per_position)
    return RestoredBucket(told.restored_from, told.restored_to, counted)
