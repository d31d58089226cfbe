"""What an experiment says of restored prefixes: harmless, harmful, not exercised, or that it cannot say."""

import math
from collections.abc import Sequence

from dspark_cli.facts.probe import Comparison, Phase, PhaseKind, ProbeResult, ProbeVerdict, Verdict
from dspark_cli.findings.acceptance.evidence import HIDING
from dspark_cli.findings.acceptance.restored_prefixes import HARMED_BELOW
from dspark_cli.probing.comparison import compare

UNHARMED_ABOVE = 0.80
"""Surely above it (the whole interval), and not surely harmed, is harmless."""
FEWEST_PROMPTS = 6
FEWEST_STEPS = 100
FEWEST_ACCEPTED = 30
EXERCISED_SHARE = 0.2
"""Of the tokens that were to be restored. A block or two of each are never restored."""
MOST_MERGED = 0.1
"""Share of draft steps. Merged ones are accounted for in a phase, but which request they are of is not known."""
STEADY = (0.85, 1.15)
"""Cold again against cold. An interval that lies outside says that something else changes acceptance."""


def restored_against_cold(result: ProbeResult) -> tuple[Comparison, ...]:
    """Every restored phase against all cold ones."""
    cold = result.of_kind(PhaseKind.COLD)
    found = (compare(cold, phase, result.seed) for phase in result.of_kind(PhaseKind.RESTORED))
    return tuple(comparison for comparison in found if comparison is not None)


def judge(result: ProbeResult, comparisons: Sequence[Comparison]) -> ProbeVerdict:
    cold, restored = result.of_kind(PhaseKind.COLD), result.of_kind(PhaseKind.RESTORED)
    return (
        _ended_early(result, cold, restored)
        or _untrustworthy([*cold, *restored])
        or _too_little(cold, restored)
        or _not_exercised(result, restored)
        or _unsteady(cold, result.seed)
        or _judged(result, comparisons)
    )


def _ended_early(result: ProbeResult, cold: Sequence[Phase], restored: Sequence[Phase]) -> ProbeVerdict | None:
    if not result.server.engines:
        return ProbeVerdict(
            Verdict.NOT_EXERCISED,
            "the server has no drafter: it has no counters of draft steps",
            "start it with one: dspark-tool serve MODEL --draft DRAFT",
        )
    if result.stopped is not None:
        return _cannot_say(f"requests fail: {result.stopped}", "see the server's log")
    if result.interrupted and len(cold) < 2 and restored:
        return _cannot_say("the probe was interrupted before the prompts were sent cold again", "run it to its end")
    if not cold or not restored:
        return _cannot_say("the probe ended before prompts were sent cold and restored", "run it to its end")
    return None


def _untrustworthy(phases: Sequence[Phase]) -> ProbeVerdict | None:
    """The first phase whose answers or counters cannot be taken at their word."""
    for phase in phases:
        if len(phase.failed) > len(phase.requests) / 10:
            return _cannot_say(f"requests failed: {phase.failed[0]}", "see the server's log")
        if phase.restarted:
            return _cannot_say(f"the server was restarted in the phase {phase.name!r}", "see its log, then probe again")
        if not phase.settled and phase.other_requests == 0:
            return _cannot_say(
                f"the server's counters did not come to rest after the phase {phase.name!r}",
                "probe it again; a proxy may keep old pages of /metrics",
            )
        if phase.claims_too_much:
            return _cannot_say(
                f"the answers of the phase {phase.name!r} hold more tokens than the server counted",
                "probe the server itself, not a proxy that changes its answers",
            )
        if phase.draft_steps and not _steps_are_known(phase):
            return _unseen(phase)
    return None


def _too_little(cold: Sequence[Phase], restored: Sequence[Phase]) -> ProbeVerdict | None:
    steps, accepted = sum(phase.draft_steps for phase in cold), sum(phase.accepted for phase in cold)
    prompts = min(len(phase.requests) for phase in (*cold, *restored))
    if steps == 0:
        return ProbeVerdict(
            Verdict.NOT_EXERCISED,
            "the server drafted nothing for these prompts",
            "see in its log whether the drafter was switched off (batch size, length, structured output)",
        )
    if prompts < FEWEST_PROMPTS or steps < FEWEST_STEPS:
        return _cannot_say(
            f"{prompts} prompts with {steps:,} draft steps cold are too few",
            f"ask for {FEWEST_PROMPTS} prompts and {FEWEST_STEPS} draft steps or more: --prompt-count, --output-tokens",
        )
    if accepted < FEWEST_ACCEPTED:
        return _cannot_say(
            f"cold prompts accept {accepted} tokens in {steps:,} draft steps: nothing is left to harm",
            "restored prefixes are not the cause; see the findings for what may be",
        )
    return None


def _steps_are_known(phase: Phase) -> bool:
    return phase.steps_merged is not None and abs(phase.steps_merged) <= MOST_MERGED


def _unseen(phase: Phase) -> ProbeVerdict:
    """With others' requests in the counters it cannot be known whether chunks are draft steps; without them, chunks
    were merged on their way."""
    if phase.other_requests is None or phase.other_requests > 0:
        seen = "" if phase.other_requests is None else f" ({phase.other_requests:,} in the phase {phase.name!r})"
        return _cannot_say(
            f"the server had other requests meanwhile{seen}",
            "probe it when it is idle, or start it with --per-request-spec-decode-metrics summary",
        )
    return _cannot_say(
        f"{phase.steps_merged or 0:.0%} of the draft steps came merged with others (phase {phase.name!r})",
        "probe the server itself, not a proxy that gathers chunks; fewer at a time: --concurrency 1",
    )


def _not_exercised(result: ProbeResult, restored: Sequence[Phase]) -> ProbeVerdict | None:
    exercised = [
        phase
        for phase in restored
        if (phase.cached_tokens or 0) >= EXERCISED_SHARE * phase.asked_share * phase.prompt_tokens
    ]
    if exercised:
        return None
    if all(phase.cached_tokens is None for phase in restored):
        return _cannot_say(
            "the server had other requests meanwhile, so how much was restored for these is not known",
            "probe it when it is idle, or start it with --enable-prompt-tokens-details, which tells it by request",
        )
    if result.server.prefix_caching is False:
        return ProbeVerdict(
            Verdict.NOT_EXERCISED,
            "prefix caching is off, so nothing was restored",
            "start the server with --enable-prefix-caching and probe again",
        )
    most = max((phase.cached_tokens or 0 for phase in restored), default=0)
    block = result.server.block_tokens
    blocks = f" A block is {block:,} tokens, and a prompt {restored[0].prompt_tokens:,.0f}." if block else ""
    return ProbeVerdict(
        Verdict.NOT_EXERCISED,
        f"of prompts sent again, {most:,.0f} tokens a request were restored.{blocks}",
        "longer prompts fill more blocks: --prompt-tokens; fewer are evicted less: --prompt-count",
    )


def _unsteady(cold: Sequence[Phase], seed: int) -> ProbeVerdict | None:
    if len(cold) < 2:
        return None
    again = compare(cold[:1], cold[-1], seed)
    if again is None or again.kept_low is None or again.kept_high is None:
        return None
    if again.kept_high >= STEADY[0] and again.kept_low <= STEADY[1]:
        return None
    return _cannot_say(
        f"the same prompts cold had an acceptance length of {again.cold_length:.2f} at first, {again.length:.2f} "
        f"at the end",
        "probe again; is anything else going on at the server?",
    )


def _judged(result: ProbeResult, comparisons: Sequence[Comparison]) -> ProbeVerdict:
    judged = [(c, c.kept_low, c.kept_high) for c in comparisons if c.kept_low is not None and c.kept_high is not None]
    if not judged:
        return _cannot_say("restored and cold prompts have no draft step in common", "probe with more prompts")
    worst, low, high = min(judged, key=lambda each: each[2])
    lengths = f"acceptance length {worst.cold_length:.2f} cold, {worst.length:.2f} in the phase {worst.phase!r}"
    if high < HARMED_BELOW:
        return ProbeVerdict(
            Verdict.HARMFUL,
            f"restored prefixes cost {_range(1 - high, 1 - low)} of the accepted draft tokens ({lengths})",
            f"{HIDING}; --no-enable-prefix-caching avoids it at the price of every prefill; the findings say what can "
            "be the cause",
        )
    loosest = min(judged, key=lambda each: each[1])
    if loosest[1] > UNHARMED_ABOVE:
        return ProbeVerdict(
            Verdict.HARMLESS,
            f"restored prefixes keep {_range(loosest[1], loosest[2])} of the accepted draft tokens, over "
            f"{loosest[0].prompts} prompts ({lengths})",
            "keep prefix caching on",
        )
    needed = math.ceil(loosest[0].prompts * ((1 - loosest[1]) / (1 - UNHARMED_ABOVE)) ** 2)
    return _cannot_say(
        f"restored prefixes keep {_range(low, high)} of the accepted draft tokens ({lengths})",
        f"probe with about {max(needed, 2 * loosest[0].prompts)} prompts: --prompt-count",
    )


def _range(low: float, high: float) -> str:
    from_, to = f"{low:.0%}", f"{high:.0%}"
    return to if from_ == to else f"{from_} to {to}"


def _cannot_say(why: str, next_step: str) -> ProbeVerdict:
    return ProbeVerdict(Verdict.CANNOT_SAY, why, next_step)
