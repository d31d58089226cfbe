"""What the drafter's layers do to the KV cache groups of the whole model, as far as config.json tells."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import Situation


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    drafter = situation.drafter
    if not drafter.mixed or min(drafter.full_layers, drafter.sliding_layers) > 1:
        return
    alone = "full" if drafter.full_layers == 1 else "sliding-window"
    yield Finding(
        "draft-layer-alone",
        Severity.INFO,
        f"the drafter has one {alone} layer beside others, and vLLM makes groups as wide as the smallest kind: each may"
        " hold a single layer, which costs time at every step",
        {"full_layers": drafter.full_layers, "sliding_layers": drafter.sliding_layers},
        "see the groups and their price: dspark-tool inspect-cache",
        source="planned here (0.33 on an H200): 2 draft layers of two kinds, 8 groups of 1 layer",
        confidence=Confidence.LIKELY,
    )
