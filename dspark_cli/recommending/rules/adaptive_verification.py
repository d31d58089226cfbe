"""Verifying fewer drafts where the drafter itself is unsure."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import speculative
from dspark_cli.recommending.situation import Situation
from dspark_cli.sources.checkpoint import Method

KEY = "enable_adaptive_verification"
REPLAYS_ANY_LENGTH = (9, 10)
"""Compute capabilities whose FlashAttention (3 and 4) replays decode graphs of requests with different lengths."""
SOURCE = "vLLM 0.33 spec_decode/adaptive_verification.py, config/vllm.py: _validate_adaptive_verification"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    drafter, busy = situation.drafter, situation.busy
    if situation.given.get(KEY) is True:
        yield from _conflicts(situation)
    if KEY not in situation.vllm.fields or drafter.method is not Method.DSPARK or situation.on_v1:
        return
    replays = (situation.device.compute_capability or (0, 0))[0] in REPLAYS_ANY_LENGTH
    if drafter.confidence_head and busy and replays and not any(_hindrances(situation)):
        yield speculative(
            KEY,
            True,
            "the drafter has a trained confidence head, and at this load every token that is verified in vain costs"
            " others time; compare it: dspark-tool tune --also enable_adaptive_verification=true,false",
            f"{SOURCE} (read, not measured by this project)",
            Confidence.POSSIBLE,
        )
    else:
        why = (
            "off: the drafter has no trained confidence head"
            if not drafter.confidence_head
            else "off: it pays where many requests share a step (say --throughput or --concurrency N)"
            if not busy
            else "off: this GPU's attention replays no graph of requests with different lengths, or another setting of"
            " yours stands against it"
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
    if (situation.options.number("--pipeline-parallel-size") or 1) > 1:
        yield "with pipeline parallelism", "leave one of the two out"
    if situation.options.is_on("--enforce-eager") or _without_full_graphs(situation):
        yield "without full CUDA graphs", "leave --enforce-eager and cudagraph_mode out"
    if situation.on_v1:
        yield "on model runner V1", "unset VLLM_USE_V2_MODEL_RUNNER"
    if situation.options.is_on("--enable-return-routed-experts"):
        yield "with --enable-return-routed-experts", "leave one of the two out"


def _without_full_graphs(situation: Situation) -> bool:
    told = (situation.options.text("--compilation-config") or "").replace(" ", "").upper()
    return any(f'"CUDAGRAPH_MODE":"{mode}"' in told for mode in ("PIECEWISE", "NONE"))
