"""Sequences longer than the drafter was made for."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import Situation

OPTION = "--max-model-len"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    drafter = situation.drafter
    length = situation.options.number(OPTION) or situation.target.longest
    if drafter.in_target or length is None:
        return
    if drafter.longest is None:
        yield NotChecked(OPTION, "the drafter's config.json has no max_position_embeddings")
        return
    if length > drafter.longest:
        yield Finding(
            "drafter-made-for-shorter",
            Severity.WARNING,
            f"sequences may have {length:,} tokens, and the drafter was made for {drafter.longest:,}:"
            f" {_what(situation)}",
            {"max_model_len": length, "drafter": drafter.longest},
            f"-- {OPTION} {drafter.longest}, or a drafter made for longer sequences",
            source="vLLM config/speculative.py: _maybe_override_draft_max_position_embeddings (0.33);"
            " config/vllm.py: _limit_max_model_len_to_draft",
            confidence=Confidence.CERTAIN,
        )


def _what(situation: Situation) -> str:
    if situation.on_v1:
        return "one longer request makes model runner V1 skip the drafter for all requests of the step"
    if situation.vllm.release < (0, 33):
        return "beyond them this release reads past the drafter's table of rotary positions"
    if situation.drafter.rope_only_sizes_a_table:
        return "vLLM makes its table of positions longer, and acceptance falls where it was never trained"
    return "vLLM lowers --max-model-len to the drafter's"
