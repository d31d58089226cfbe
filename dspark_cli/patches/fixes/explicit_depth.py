"""Keep the depth that the scheduler chose, 0 included, where the worker hands back drafts of the full depth.

Without asynchronous scheduling the worker's drafts become the request's. Model Runner V2 up to 0.31 drafts and hands
back the full depth whatever the schedule of depths says.
"""

from typing import Any

DEPTH = "_dspark_tool_depth"
"""What a scheduler of ours remembers; also the mark of one that has the fix."""


def apply() -> None:
    """Cut handed-back drafts to the depth of the latest schedule; drafts that are as long already stay as they are."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.outputs import DraftTokenIds

    if hasattr(Scheduler, DEPTH):
        return
    after_schedule, take_drafts = Scheduler._update_after_schedule, Scheduler.update_draft_token_ids

    def remember_depth(scheduler: Any, scheduler_output: Any) -> None:
        has_schedule = scheduler.dynamic_sd_lookup is not None
        setattr(scheduler, DEPTH, scheduler_output.num_spec_tokens_to_schedule if has_schedule else None)
        after_schedule(scheduler, scheduler_output)

    def take_no_more_than_depth(scheduler: Any, draft_token_ids: Any) -> None:
        depth = getattr(scheduler, DEPTH)
        cut = [drafts if depth is None else drafts[:depth] for drafts in draft_token_ids.draft_token_ids]
        take_drafts(scheduler, DraftTokenIds(draft_token_ids.req_ids, cut))

    setattr(Scheduler, DEPTH, None)
    Scheduler._update_after_schedule = remember_depth
    Scheduler.update_draft_token_ids = take_no_more_than_depth
