"""Restored prefixes harm the drafts, found by experiment; and whether the harm grows with what is restored."""

from collections.abc import Iterator, Sequence

from dspark_cli.facts.probe import Comparison
from dspark_cli.findings.acceptance.evidence import HIDING, LASTING_CURE, AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "collapse-follows-cached-length"
HARMED_BELOW = 0.9
"""Kept share of the accepted tokens. Surely below it (the whole interval) is harm. Hiding all restored blocks costs up
to 7% of them, and up to 29% where a drafter leans on its context and next to nothing else is left."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    if evidence.restored is None:
        yield NotChecked(ID, "it takes the same prompts cold and restored: dspark-tool probe --url URL")
        return
    known = [each for each in evidence.restored if each.kept_high is not None and each.cached_tokens is not None]
    if not known:
        yield NotChecked(ID, "the probe gives no verdict on restored prompts")
        return
    longest = max(known, key=lambda each: each.cached_tokens or 0)
    worst = min(known, key=lambda each: each.kept_high or 0)
    if (worst.kept_high or 0) >= HARMED_BELOW:
        return
    grows = _grows(known)
    by_length = "; ".join(
        f"{each.cached_tokens:,.0f} tokens restored: {each.length:.2f}"
        for each in sorted(known, key=lambda each: each.cached_tokens or 0)
    )
    steps, cold = 1000 / worst.length, 1000 / worst.cold_length
    yield Finding(
        ID,
        Severity.ERROR,
        f"the same prompts have an acceptance length of {worst.cold_length:.2f} cold and {worst.length:.2f} restored "
        f"({by_length}): "
        + ("the more is restored, the worse" if grows else "what is restored harms the drafts")
        + f"; that is {steps:.0f} decode steps for 1,000 tokens instead of {cold:.0f}",
        {
            "cold_length": round(worst.cold_length, 4),
            "restored_length": round(worst.length, 4),
            "kept_low": worst.kept_low,
            "kept_high": worst.kept_high,
            "longest_cached_tokens": longest.cached_tokens,
            "grows_with_cached_length": grows,
            "decode_steps_per_1000_tokens": round(steps, 1),
            "decode_steps_per_1000_tokens_cold": round(cold, 1),
        },
        "the restored blocks hold no draft KV of these tokens: look for a KV connector or a prefill node without the "
        "drafter, and for requests longer than the drafter's max_model_len beside others (Runner V1). "
        f"{HIDING} (where it is on, see how much it hides: dspark-tool acceptance --url URL); {LASTING_CURE}. Without "
        "either, --no-enable-prefix-caching, or a connector that restores nothing, gives the drafts back",
        source="prompts with equal tokens, cold and restored, at temperature 0",
        confidence=Confidence.CERTAIN,
    )


def _grows(known: Sequence[Comparison]) -> bool | None:
    """Whether more restored tokens surely mean fewer accepted ones: intervals apart. None of a single length."""
    by_length = sorted(known, key=lambda each: each.cached_tokens or 0)
    if len(by_length) < 2:
        return None
    return (by_length[-1].kept_high or 0) < (by_length[0].kept_low or 0)
