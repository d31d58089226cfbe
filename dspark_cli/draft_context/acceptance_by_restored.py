"""Draft acceptance by how many tokens of a request were restored, counted in the engine core beside vLLM's counters.

vLLM's scheduler learns both at no cost: `schedule` returns at how many computed tokens it admits a request, and
`make_spec_decoding_stats` gets what each draft step accepted. Both are wrapped; the sums over all buckets are vLLM's
own `vllm:spec_decode_*` counters. What is restored is what was computed at the latest admission or resumption.
"""

import functools
import inspect
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

EDGES = (0, 1, 256, 1024, 4096, 16384, 65536)
"""Restored tokens at which a bucket begins; the last has no end."""
COUNTED_PARAMETERS = (
    "self",
    "spec_decoding_stats",
    "num_draft_tokens",
    "num_accepted_tokens",
    "num_invalid_spec_tokens",
    "request_id",
)
HELD_BY = "_dspark_acceptance_by_restored"
"""A scheduler's attribute with its counts."""
WRAPS = "_dspark_counts_acceptance"
UNKNOWN_REQUEST = "draft steps of a request came whose admission was not seen"


@dataclass
class Bucket:
    """`steps_by_accepted[n]` is how many draft steps accepted n tokens."""

    steps_by_accepted: list[int]
    draft_tokens: int = 0

    def described(self, restored_from: int, restored_to: int | None) -> dict[str, Any]:
        """Plain values; a step is accepted at position i where it accepted more than i tokens."""
        at_least = list(accumulate(reversed(self.steps_by_accepted)))[::-1]
        return {
            "restored_from": restored_from,
            "restored_to": restored_to,
            "draft_steps": at_least[0],
            "draft_tokens": self.draft_tokens,
            "accepted_tokens": sum(at_least[1:]),
            "accepted_per_position": at_least[1:],
        }


class AcceptanceCounts:
    """One scheduler's counts. `doubt` says why they cannot be used, once something went wrong."""

    def __init__(self, draft_positions: int) -> None:
        self.doubt: str | None = None
        self._buckets = [Bucket([0] * (draft_positions + 1)) for _ in EDGES]
        self._bucket_of: dict[str, Bucket] = {}
        self._leaving: set[str] = set()

    def admit(self, output: Any) -> None:
        """Take note of who is admitted in a SchedulerOutput, and of who has left.

        A finished request is forgotten one step later, and not at all where its id is admitted anew.
        """
        for request_id in self._leaving:
            self._bucket_of.pop(request_id, None)
        for new in output.scheduled_new_reqs:  # Runner V2's resumed requests are among these
            self._enter(new.req_id, new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        if cached.resumed_req_ids:
            for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
                if request_id in cached.resumed_req_ids:
                    self._enter(request_id, computed)
        again = {new.req_id for new in output.scheduled_new_reqs} if output.finished_req_ids else set()
        self._leaving = set(output.finished_req_ids) - again

    def observe(self, request_id: str, drafted: int, accepted: int) -> None:
        """One draft step. Raises KeyError: the request's admission was not seen."""
        bucket = self._bucket_of[request_id]
        bucket.draft_tokens += drafted
        bucket.steps_by_accepted[accepted] += 1

    def described(self) -> dict[str, Any]:
        ends = [end for _, end in pairwise((*EDGES, None))]
        return {
            "edges": list(EDGES),
            "buckets": [
                bucket.described(begin, end) for bucket, begin, end in zip(self._buckets, EDGES, ends, strict=True)
            ],
        }

    @property
    def requests(self) -> int:
        """Of how many requests it keeps the bucket."""
        return len(self._bucket_of)

    def _enter(self, request_id: str, restored: int) -> None:
        self._bucket_of[request_id] = self._buckets[bisect_right(EDGES, restored) - 1]


def count_acceptance() -> str | None:
    """Let vLLM's schedulers count in this process; calling it again changes nothing. Never raises.

    Returns:
        None, or why this vLLM's scheduler is not counted: then nothing of it is changed.
    """
    try:
        from vllm.v1.core.sched.scheduler import Scheduler

        if hasattr(Scheduler.make_spec_decoding_stats, WRAPS):
            return None
        refusal = why_not_countable(Scheduler)
        if refusal is None:
            Scheduler.schedule = admitting(Scheduler.schedule)
            Scheduler.make_spec_decoding_stats = observing(Scheduler.make_spec_decoding_stats)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return refusal


def describe_acceptance(engine_core: Any) -> dict[str, Any]:
    """The counts of an EngineCore's scheduler as plain values, or `unsupported`, a reason. Never raises."""
    try:
        from vllm.v1.core.sched.scheduler import Scheduler

        scheduler = engine_core.scheduler
        if not hasattr(Scheduler.make_spec_decoding_stats, WRAPS):
            return {"unsupported": why_not_countable(Scheduler) or "its scheduler is not counted"}
        if getattr(type(scheduler), "make_spec_decoding_stats", None) is not Scheduler.make_spec_decoding_stats:
            return {"unsupported": f"the scheduler {type(scheduler).__name__} counts drafts in its own way"}
        if not scheduler.log_stats:
            return {"unsupported": "vLLM itself counts nothing, for the server runs with --disable-log-stats"}
        counts = counts_of(scheduler)
        return {"unsupported": counts.doubt} if counts.doubt else counts.described()
    except Exception as error:
        return {"unsupported": f"{type(error).__name__}: {error}".partition("\n")[0]}


def why_not_countable(scheduler: Any) -> str | None:
    """Why the class `scheduler` cannot be counted, or None where it gives what is needed and counts as is known."""
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

    needed = {
        SchedulerOutput: {"scheduled_new_reqs", "scheduled_cached_reqs", "finished_req_ids"},
        NewRequestData: {"req_id", "num_computed_tokens"},
        CachedRequestData: {"req_ids", "resumed_req_ids", "num_computed_tokens"},
    }
    for of, names in needed.items():
        missing = names - {field.name for field in fields(of)}
        if missing:
            return f"{of.__name__} of this vLLM has no {min(missing)}"
    parameters = tuple(inspect.signature(scheduler.make_spec_decoding_stats).parameters)
    if parameters != COUNTED_PARAMETERS:
        return f"make_spec_decoding_stats of this vLLM takes ({', '.join(parameters)})"
    if not counts_as_known(scheduler.make_spec_decoding_stats):
        return "make_spec_decoding_stats of this vLLM counts in another way than is known"
    return None


def counts_as_known(make_spec_decoding_stats: Callable[..., Any]) -> bool:
    """Whether vLLM's unbound function counts a few draft steps as `AcceptanceCounts` does."""
    silent, counting = (SimpleNamespace(log_stats=on, num_spec_tokens=3) for on in (False, True))
    invalid = {"a": 2}
    if make_spec_decoding_stats(silent, None, 3, 1, None, "a") is not None:
        return False
    if make_spec_decoding_stats(counting, None, 0, 0, None, "a") is not None:
        return False
    bucket = Bucket([0] * 4)
    stats: Any = None
    for request_id, drafted, accepted in (("a", 3, 1), ("b", 3, 3), ("b", 2, 0)):
        stats = make_spec_decoding_stats(counting, stats, drafted, accepted, invalid, request_id)
        bucket.draft_tokens += drafted - invalid.get(request_id, 0)
        bucket.steps_by_accepted[accepted] += 1
    ours = bucket.described(0, None)
    theirs = {
        "draft_steps": stats.num_drafts,
        "draft_tokens": stats.num_draft_tokens,
        "accepted_tokens": stats.num_accepted_tokens,
        "accepted_per_position": stats.num_accepted_tokens_per_pos,
    }
    return all(ours[name] == count for name, count in theirs.items())


def admitting(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """`Scheduler.schedule` that also notes who is admitted."""

    @functools.wraps(schedule)
    def schedule_and_admit(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(self, *args, **kwargs)
        counts = counts_of(self)
        try:
            counts.admit(output)
        except Exception as error:  # counting must not stop the engine
            counts.doubt = f"admissions could not be read ({type(error).__name__})"
        return output

    return schedule_and_admit


def observing(make_spec_decoding_stats: Callable[..., Any]) -> Callable[..., Any]:
    """`Scheduler.make_spec_decoding_stats` that also counts by restored tokens, where vLLM counts."""

    @functools.wraps(make_spec_decoding_stats)
    def make_and_observe(
        self: Any,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        stats = make_spec_decoding_stats(
            self, spec_decoding_stats, num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id
        )
        if stats is not None:
            # Runs for every request of every step, in the thread that schedules: each look-up is felt.
            counts = self.__dict__.get(HELD_BY) or counts_of(self)
            if num_invalid_spec_tokens:
                num_draft_tokens -= num_invalid_spec_tokens.get(request_id, 0)
            try:
                counts.observe(request_id, num_draft_tokens, num_accepted_tokens)
            except KeyError:
                counts.doubt = UNKNOWN_REQUEST
            except Exception as error:  # counting must not stop the engine
                counts.doubt = f"draft steps could not be counted ({type(error).__name__})"
        return stats

    setattr(make_and_observe, WRAPS, True)
    return make_and_observe


def counts_of(scheduler: Any) -> AcceptanceCounts:
    """The scheduler's own counts, made when they are first asked for."""
    counts: AcceptanceCounts | None = scheduler.__dict__.get(HELD_BY)
    if counts is None:
        counts = scheduler.__dict__[HELD_BY] = AcceptanceCounts(scheduler.num_spec_tokens)
    return counts
