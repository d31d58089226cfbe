"""How the drafter samples: greedily, or from its distribution, which costs memory and pays only when users sample."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import speculative
from dspark_cli.recommending.situation import Situation
from dspark_cli.recommending.vllm_defaults import step_defaults

KEY = "draft_sample_method"
PROBABILISTIC = "probabilistic"
BYTES_A_LOGIT = 2
WORTH_SAYING = 100 << 20


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    if KEY not in situation.vllm.fields:
        return
    size = _logit_bytes(situation)
    worth_saying = size is not None and size >= WORTH_SAYING
    cost = f"; {PROBABILISTIC} would keep {size / 2**30:.1f} GiB of draft logits" if size and worth_saying else ""
    yield speculative(
        KEY,
        None,
        f"greedy, vLLM's own: at temperature 0 the two accept alike{cost}. Where most requests sample at temperature"
        f" 1, compare {PROBABILISTIC} (dspark-tool tune --also {KEY}=greedy,{PROBABILISTIC})",
        "vLLM config/speculative.py: draft_sample_method",
        Confidence.LIKELY,
    )
    if situation.given.get(KEY) == PROBABILISTIC and situation.drafter.is_xpress:
        yield Finding(
            "xpress-drafts-greedily",
            Severity.ERROR,
            "an XPress head drafts greedily whatever is asked for, and with probabilistic drafts the rejection step"
            " compares with logits that nobody wrote: sampled text is then no longer the target's",
            {KEY: PROBABILISTIC},
            f"leave {KEY} out",
            source="vLLM 0.33 spec_decode/xpress/speculator.py: _jacobi_refine writes no draft_logits, which"
            " speculator.py fills with zeros",
            confidence=Confidence.LIKELY,
        )


def _logit_bytes(situation: Situation) -> int | None:
    vocabulary, tokens = situation.target.vocabulary, situation.draft_tokens
    defaults = step_defaults(situation.device, situation.vllm.release)
    sequences = situation.options.number("--max-num-seqs") or (defaults.sequences if defaults else None)
    return vocabulary * tokens * sequences * BYTES_A_LOGIT if vocabulary and tokens and sequences else None
