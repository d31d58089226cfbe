"""The dtype of the drafter's KV cache: the target's."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import speculative
from dspark_cli.recommending.situation import Situation

KEY = "kv_cache_dtype"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    target = situation.options.text("--kv-cache-dtype") or "auto"
    yield speculative(
        KEY,
        None,
        f"the target's ({target}): layers of one page size share their groups, and draft attention is prepared for"
        " the target's dtype",
        "vLLM 0.33 spec_decode/dflash/utils.py: load_dflash_model",
        Confidence.LIKELY,
    )
    own = situation.given.get(KEY)
    if own is not None and str(own) != target:
        yield Finding(
            "draft-kv-dtype-differs",
            Severity.WARNING,
            f"the drafter's KV cache is to be {own} and the target's {target}: pages of two sizes are padded or split"
            " into groups, and draft attention metadata is built for the target's dtype",
            {"draft": str(own), "target": target},
            f"leave {KEY} out, and compare the plans: dspark-tool inspect-cache --what-if draft.kv_cache_dtype={own}",
            source="read in vLLM 0.33 spec_decode/dflash/speculator.py: attn_vllm_config, not run",
            confidence=Confidence.POSSIBLE,
        )
