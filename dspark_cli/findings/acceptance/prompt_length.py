"""Acceptance that falls with the length of the prompt, though nothing was restored: another fault, another cure."""

from collections.abc import Iterator

from dspark_cli.facts.probe import Comparison
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "falls-with-prompt-length"
OF_A_PROBE = "the probe gives no verdict, or has no answers to short prompts"
ELSEWHERE = "it takes long and short prompts, both cold: dspark-tool probe --url URL"
FALLS_BELOW = 0.75
"""Surely: the end of a prompt is another text without its beginning, and may go on a little better."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    found = evidence.long_against_short
    if found is None:
        yield NotChecked(ID, ELSEWHERE if evidence.restored is None else OF_A_PROBE)
        return
    if found.kept_high is None:
        yield NotChecked(ID, "short prompts accept nothing either, so there is nothing to fall from")
        return
    if not falls_with_length(found):
        return
    yield Finding(
        ID,
        Severity.ERROR,
        f"cold prompts have an acceptance length of {found.length:.2f}, and their last parts alone "
        f"{found.cold_length:.2f}: acceptance falls with the length of the context, with nothing restored",
        {
            "short_length": round(found.cold_length, 4),
            "long_length": round(found.length, 4),
            "kept_low": found.kept_low,
            "kept_high": found.kept_high,
        },
        "prefix caching is not the cause. Compare the drafter's trained length and max_position_embeddings with your "
        "prompts; vLLM 0.24 to 0.32 read past the drafter's rope table (Runner V2), and before 0.30 FlashAttention's "
        "schedule could be another backend's: dspark-tool doctor shows the release",
        fixed_since=None,
        source="measured with a drafter whose context positions end early",
        confidence=Confidence.LIKELY,
    )


def falls_with_length(found: Comparison | None) -> bool:
    """Whether long prompts surely accept less than short ones; not where nothing is known."""
    return found is not None and found.kept_high is not None and found.kept_high < FALLS_BELOW
