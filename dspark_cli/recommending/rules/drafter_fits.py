"""A drafter is trained for one target: what of its config.json must agree with the target's."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import Situation

ID = "drafter-of-another-target"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    target, drafter = situation.target, situation.drafter
    if drafter.in_target:
        return
    disagreements = list(_disagreements(situation))
    if disagreements:
        yield Finding(
            ID,
            Severity.ERROR,
            f"{drafter.name} was not trained for {target.name}: {'; '.join(disagreements)}",
            {
                "drafter_target_layers": drafter.target_layers,
                "target_layers": target.layers,
                "drafter_target_hidden_size": drafter.target_hidden_size,
                "target_hidden_size": target.hidden_size,
            },
            "give the drafter that was published for this target, or this drafter's own target",
            source="the two config.json; vLLM qwen3_dflash.py: _get_dflash_fc_input_size",
            confidence=Confidence.CERTAIN,
        )
    elif target.layers is None or drafter.target_layers is None:
        yield NotChecked(ID, "a config.json does not say how many layers the target has")


def _disagreements(situation: Situation) -> Iterator[str]:
    target, drafter = situation.target, situation.drafter
    if target.layers and drafter.target_layers and drafter.target_layers != target.layers:
        yield f"it was made for {drafter.target_layers} layers, and the target has {target.layers}"
    if target.layers and drafter.read_layers and max(drafter.read_layers) >= target.layers:
        yield f"it reads layer {max(drafter.read_layers)}, and the target's last is {target.layers - 1}"
    width = None if drafter.takes_targets_width else drafter.target_hidden_size
    if target.hidden_size and width and width != target.hidden_size:
        yield f"it reads hidden states of {width}, and the target's have {target.hidden_size}"
    if target.vocabulary and drafter.vocabulary and drafter.vocabulary > target.vocabulary:
        yield f"it drafts from {drafter.vocabulary} tokens, and the target knows {target.vocabulary}"
