"""Verifying fewer drafts where the drafter itself is unsure."""

from collections.abc import Iterator

from dspark_cli.facts.recommendation import Choice
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.rules.draft_tokens import BUSY
from dspark_cli.recommending.saying import speculative
from dspark_cli.recommending.situation import Goal, Situation
from dspark_cli.sources.checkpoint import Method

KEY = "enable_adaptive_verification"
SOURCE = "vLLM 0.33 spec_decode/adaptive_verification.py, config/vllm.py: _validate_adaptive_verification"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    drafter, load = situation.drafter, situation.workload
    if situation.given.get(KEY) is True:
        yield from _conflicts(situation)
    if KEY not in situation.vllm.fields or drafter.method is not Method.DSPARK or situation.on_v1:
        return
    busy = load.goal is Goal.THROUGHPUT or (load.concurrency or 0) >= BUSY
    if drafter.confidence_head and busy and not any(_hindrances(situation)):
        yield speculative(
            KEY,
            True,
            "the drafter has a trained confidence head, and at this load every token that is verified in vain costs"
            " others time; compare it: dspark-tool tune --also enable_adaptive_verification=true,false",
            f"{SOURCE} (read, not measured here)",
            Confidence.POSSIBLE,
        )
    else:
        why = (
            "off: it pays where many requests share a step (say --throughput or --concurrency N)"
            if drafter.confidence_head
            else "off: the drafter has no trained confidence head"
        )
        yield speculative(KEY, None, why, SOURCE, Confidence.LIKELY)


def _conflicts(situation: Situation) -> Iterator[Finding]:
    for why, advice in _hindrances(situation):
        yield Finding(
            "adaptive-verification-refused",
            Severity.ERROR,
            f"adaptive verification does not start {why}",
            {},
            advice,
            source=SOURCE,
            confidence=Confidence.CERTAIN,
        )


def _hindrances(situation: Situation) -> Iterator[tuple[str, str]]:
    if situation.options.is_on("--enable-lora"):
        yield "with LoRA", "leave one of the two out"
    if situation.options.is_on("--enforce-eager"):
        yield "without full CUDA graphs", "leave --enforce-eager out"
    if situation.on_v1:
        yield "on model runner V1", "unset VLLM_USE_V2_MODEL_RUNNER"
    if situation.options.is_on("--enable-return-routed-experts"):
        yield "with --enable-return-routed-experts", "leave one of the two out"
