"""Whether the patched runtime fits the installed vLLM at all."""

from collections.abc import Iterator

from dspark_cli.draft_context.policy import Policy
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import Situation

ID = "draft-context-does-not-fit"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    patch = "draft_context_v1" if situation.on_v1 else "draft_context_v2"
    if situation.policy == Policy.OFF or patch in situation.mended:
        return
    yield Finding(
        ID,
        Severity.ERROR,
        f"the patch {patch}, which hides stale context, does not fit {situation.vllm}: serve refuses to start",
        {"patch": patch},
        "serve --allow-unpatched goes on without it; the reason: dspark-tool patches",
        source="the registry of patches",
        confidence=Confidence.CERTAIN,
    )
