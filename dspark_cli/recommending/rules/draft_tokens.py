"""How many tokens a draft step proposes: measured, else as trained, less where a state for each costs the capacity."""

from collections.abc import Iterator

from dspark_cli.facts.measured_profile import MeasuredProfile
from dspark_cli.facts.tuning import LatencyBound
from dspark_cli.findings.acceptance.evidence import WORTH
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.measured import evidence_for, most_tokens, nearest, schedule_worth_giving
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import CHECKPOINT, speculative
from dspark_cli.recommending.situation import Situation

KEY = "num_speculative_tokens"
SCHEDULE = "num_speculative_tokens_per_batch_size"
DOES_NOT_PAY = "speculation-does-not-pay"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    yield from _of_another_pair(situation)
    yield from _broken(situation)
    choice = _measured(situation) or _counted(situation) or _trained(situation)
    if choice is None:
        yield NotChecked(KEY, "config.json has no usable block_size: give --tokens N")
    else:
        yield choice
    yield from _schedule(situation)
    yield from _beyond_the_training(situation)


def _measured(situation: Situation) -> Choice | None:
    profile, concurrency = situation.profile, situation.workload.at_once
    tokens = most_tokens(profile, concurrency)
    best = evidence_for(profile, concurrency) if profile else None
    if profile is None or best is None or tokens is None:
        return None
    without = best.goodput_without_speculation
    against = f", {best.goodput / without - 1:+.0%} against no speculation" if without else ""
    return speculative(
        KEY,
        tokens,
        f"measured on {profile.device}: at {best.concurrency} at once {best.tokens} tokens gave {best.goodput:,.0f}"
        f" tokens/s{_within(profile)}{against}",
        f"--profile, measured {profile.measured_on} with vLLM {profile.vllm}",
        Confidence.CERTAIN if best.certain else Confidence.LIKELY,
    )


def _within(profile: MeasuredProfile) -> str:
    bound = LatencyBound(profile.ttft_ms, profile.tpot_ms)
    return f" of requests with {bound.words}" if bound.given else ""


def _counted(situation: Situation) -> Choice | None:
    counted = situation.counted
    if counted is None or not counted.says_how_many:
        return None
    return speculative(
        KEY,
        counted.keep,
        f"of {counted.drafted} drafted positions the first {counted.keep} pay; later ones are accepted in under"
        f" {WORTH:.0%} of {counted.steps:,} draft steps",
        f"--profile {counted.source}",
        Confidence.LIKELY,
    )


def _trained(situation: Situation) -> Choice | None:
    drafter, busy = situation.drafter, situation.busy
    trained, tokens = drafter.trained_tokens, situation.tokens_without_figures
    if trained is None or tokens is None:
        return None
    if tokens < trained:
        return speculative(
            KEY,
            tokens,
            f"the target's recurrent layers keep a state for each drafted token, so fewer of them leave room for more"
            f" requests; of {trained} the last positions are seldom accepted",
            "planned for this project: inspect-cache of Qwen3.6-27B, 15 tokens 511,804 KV tokens, 7 tokens 683,733",
            Confidence.LIKELY,
        )
    layout = (
        "one less than its block, which begins with the known token"
        if drafter.query_tokens_extra
        else "its block, which is drafted from the first place on"
    )
    unsure = "; at this load fewer may be better: measure it with dspark-tool tune" if busy else ""
    return speculative(
        KEY,
        trained,
        f"as trained: {layout}{unsure}",
        CHECKPOINT,
        Confidence.POSSIBLE if busy else Confidence.LIKELY,
    )


def _schedule(situation: Situation) -> Iterator[Choice | Finding]:
    profile, schedule = situation.profile, schedule_worth_giving(situation.profile)
    if profile and schedule and SCHEDULE not in situation.given:
        yield speculative(
            SCHEDULE,
            [list(entry) for entry in schedule],
            "the best count changes with the load; entries are first and last batch size, tokens",
            f"--profile, measured {profile.measured_on} on {profile.device}",
            Confidence.LIKELY,
        )
    if schedule or SCHEDULE in situation.given:
        yield from _limits_of_schedules(situation)


def _limits_of_schedules(situation: Situation) -> Iterator[Finding]:
    ranks = situation.options.number("--data-parallel-size") or 1
    if ranks > 1:
        yield Finding(
            "schedule-under-data-parallel",
            Severity.WARNING,
            f"vLLM drops {SCHEDULE} with {ranks} data parallel ranks and drafts the full number at every load",
            {"data_parallel_size": ranks},
            "one server for each replica behind a router keeps the schedule; or give one number: --tokens N",
            source="vLLM 0.33 config/vllm.py: _maybe_disable_dynamic_sd_for_data_parallel",
            confidence=Confidence.CERTAIN,
        )
    if situation.vllm.known and situation.vllm.release < (0, 32) and "explicit_depth_zero" not in situation.mended:
        yield Finding(
            "schedule-needs-fixes",
            Severity.WARNING,
            f"vLLM {situation.vllm.version} handles depths that change with the load wrongly in places, and the fixes"
            " are not put on here",
            {"vllm": situation.vllm.version},
            "dspark-tool patches says which are missing; --tokens N drafts one number at every load",
            source="patches explicit_depth_zero and zero_width_graphs",
            confidence=Confidence.LIKELY,
        )


def _beyond_the_training(situation: Situation) -> Iterator[Finding]:
    trained, asked = situation.drafter.trained_tokens, situation.draft_tokens
    if trained is None or asked is None or asked <= trained:
        return
    yield Finding(
        "more-tokens-than-trained",
        Severity.WARNING,
        f"{asked} speculative tokens are asked for, and {situation.drafter.name} was trained for {trained}: the"
        f" positions from {trained} on are accepted next to never, and are verified at every step",
        {"num_speculative_tokens": asked, "trained": trained},
        f"--tokens {trained}",
        source="measured by this project: 12 tokens of a drafter trained for 7 (0.32, CPU) fall off a cliff at 7",
        confidence=Confidence.CERTAIN,
    )


def _of_another_pair(situation: Situation) -> Iterator[Finding]:
    profile = situation.profile
    if profile is None:
        return
    differing = [
        f"{what} {there} there, {here} here"
        for what, there, here in (
            ("target", _last_part(profile.target), _last_part(situation.target.name)),
            ("drafter", _last_part(profile.drafter), _last_part(situation.drafter.name)),
            ("device", profile.device.removeprefix("1 x "), str(situation.device)),
        )
        if there != here
    ]
    if differing:
        yield Finding(
            "profile-of-another-setting",
            Severity.WARNING,
            f"the profile was measured with another setting: {'; '.join(differing)}",
            {"measured_on": profile.measured_on},
            "measure this one: dspark-tool tune",
            source="--profile",
            confidence=Confidence.CERTAIN,
        )
    if not profile.best:
        bound = LatencyBound(profile.ttft_ms, profile.tpot_ms)
        yield Finding(
            "bound-never-met",
            Severity.WARNING,
            f"the profile has no best number of tokens: at no load a request met its bound ({bound.words})",
            {"ttft_ms": profile.ttft_ms, "tpot_ms": profile.tpot_ms},
            "measure with another bound: dspark-tool tune with a larger --ttft-ms or --tpot-ms",
            source="--profile",
            confidence=Confidence.CERTAIN,
        )
    best = nearest(profile, situation.workload.at_once)
    if best is not None and best.tokens == 0 and not schedule_worth_giving(profile):
        yield Finding(
            DOES_NOT_PAY,
            Severity.WARNING,
            f"at {best.concurrency} at once the profile found no number of tokens that"
            f" {'' if best.certain else 'surely '}beats no speculation"
            f" ({best.goodput:,.0f} tokens/s{_within(profile)})",
            {"concurrency": best.concurrency},
            "serve the target alone at this load: vllm serve without --speculative-config",
            source="--profile",
            confidence=Confidence.CERTAIN if best.certain else Confidence.LIKELY,
        )


def _broken(situation: Situation) -> Iterator[Finding]:
    counted = situation.counted
    if counted is None or not counted.broken:
        return
    yield Finding(
        "counted-acceptance-is-broken",
        Severity.WARNING,
        f"the profile's acceptance length is {counted.length:.2f} over {counted.steps:,} draft steps: that is a fault"
        " to be mended, and says nothing of the number of tokens",
        {"mean_acceptance_length": round(counted.length, 4), "draft_steps": counted.steps},
        f"dspark-tool acceptance --file {counted.source} says what it looks like",
        source="--profile",
        confidence=Confidence.CERTAIN,
    )


def _last_part(name: str) -> str:
    """A folder may be given by several paths, and a hub's model lie in any of them."""
    return name.rstrip("/").rpartition("/")[2]
