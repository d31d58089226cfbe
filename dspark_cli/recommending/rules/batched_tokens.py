"""Tokens of a step: what drafts take of them, and how to keep the user's number true.

0.26 and 0.27 lower the scheduled tokens by the draft slots of all sequences that may run; 0.28 to 0.32 take them from a
step's budget for each request in it; 0.33 takes none, and lets fewer requests run where their queries do not fit.
"""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import of_vllm
from dspark_cli.recommending.situation import Situation
from dspark_cli.recommending.vllm_defaults import step_defaults
from dspark_cli.sources.checkpoint import Method

OPTION = "--max-num-batched-tokens"
SEQUENCES = "--max-num-seqs"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    tokens = situation.draft_tokens
    if tokens is None:
        return
    if not situation.vllm.known:
        yield NotChecked(OPTION, f"what drafts take of a step was not read in vLLM {situation.vllm.version}")
        return
    given = situation.options.number(OPTION)
    if situation.vllm.release >= (0, 33):
        yield from _room_for_queries(situation, tokens, given)
    else:
        yield from _room_for_slots(situation, tokens, given)


def _room_for_queries(situation: Situation, tokens: int, given: int | None) -> Iterator[Choice | Finding]:
    query = tokens + situation.drafter.query_tokens_extra
    sequences = situation.options.number(SEQUENCES) or situation.workload.at_once
    source = "vLLM 0.33 config/vllm.py: _set_max_num_scheduled_tokens"
    if given is not None and sequences is not None and given < sequences * query:
        yield Finding(
            "too-few-batched-tokens",
            Severity.WARNING,
            f"{given:,} tokens a step have room for the drafts of {given // query} requests ({query} query tokens"
            f" each), so vLLM lets no more than that run, not {sequences}",
            {"max_num_batched_tokens": given, "query_tokens": query, "sequences": sequences},
            f"{OPTION} {sequences * query}",
            source=source,
            confidence=Confidence.CERTAIN,
        )
    defaults, needed = step_defaults(situation.device, situation.vllm.release), (sequences or 0) * query
    if defaults and needed > defaults.batched_tokens:
        reason = (
            f"{sequences} requests at once need {query} query tokens each to draft; with vLLM's"
            f" {defaults.batched_tokens:,} fewer would run"
        )
        yield of_vllm(OPTION, needed, reason, source, Confidence.CERTAIN)
    else:
        most = f"; at most {defaults.batched_tokens // query:,} requests draft at once" if defaults else ""
        reason = f"vLLM's: drafts take nothing of a step's tokens here{most}"
        yield of_vllm(OPTION, None, reason, source, Confidence.CERTAIN)


def _room_for_slots(situation: Situation, tokens: int, given: int | None) -> Iterator[Choice | Finding]:
    early = situation.vllm.release < (0, 28)
    slots = tokens if situation.drafter.method is Method.DFLASH and not early else tokens - 1
    defaults = step_defaults(situation.device, situation.vllm.release)
    sequences = situation.options.number(SEQUENCES) or (defaults.sequences if defaults else None)
    running = sequences if early else situation.workload.at_once
    source = (
        "vLLM 0.26 config/vllm.py: _set_max_num_scheduled_tokens"
        if early
        else "vLLM 0.28 to 0.32 v1/core/sched/scheduler.py: draft_slots"
    )
    wanted = defaults.batched_tokens if defaults else 0
    if running is not None and given is not None and given - running * slots < max(wanted, 1):
        yield _taken_from_the_users(given, running, slots, source)
    if running is None or defaults is None:
        reason = (
            f"vLLM's; each running request takes {slots} tokens of a step for its drafts{_to_make_up(running, slots)}"
        )
        yield of_vllm(OPTION, None, reason, source, Confidence.LIKELY)
        return
    taken = running * slots
    reason = f"{defaults.batched_tokens:,} as vLLM's, and {taken:,} that the drafts of {running:,} requests take"
    yield of_vllm(OPTION, defaults.batched_tokens + taken, reason, source, Confidence.LIKELY)


def _to_make_up(running: int | None, slots: int) -> str:
    """What to do about it. `running` is None where nobody said; else vLLM's own number for this device is not known."""
    if running is None:
        return " (say --concurrency N to make up for it)"
    return f": {running * slots:,} in all, to add where you give a number of your own"


def _taken_from_the_users(given: int, running: int, slots: int, source: str) -> Finding:
    taken = running * slots
    nothing_left = given <= taken
    return Finding(
        "drafts-take-batched-tokens",
        Severity.ERROR if nothing_left else Severity.WARNING,
        f"of {given:,} tokens a step, {taken:,} go to draft slots of {running:,} requests, so that"
        f" {max(given - taken, 0):,} are left for prompts",
        {"max_num_batched_tokens": given, "draft_slots": taken, "requests": running},
        f"{OPTION} {given + taken} keeps your number for prompts",
        source=source,
        confidence=Confidence.CERTAIN,
    )
