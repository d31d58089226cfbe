"""How many tokens in a row a context-parallel rank gets: beside a drafter, nearly all attention takes one alone."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, Severity
from dspark_cli.recommending.rules.context_parallel import BACKEND, DCP
from dspark_cli.recommending.situation import CONNECTOR, Situation

PCP = "--prefill-context-parallel-size"
INTERLEAVE, OLD_INTERLEAVE = "--cp-kv-cache-interleave-size", "--dcp-kv-cache-interleave-size"
OLD_WINS_WITHOUT_CONNECTOR_UNTIL = (0, 28)
TAKES_MORE_SINCE = {"FLASHMLA_SPARSE": (0, 31), "TOKENSPEED_MLA": (0, 32)}
"""Both are for latent attention. (0.30 asks a drafter's replicated layers too.)"""


def rule(situation: Situation) -> Iterator[Finding]:
    number = situation.options.number
    ranks = (number(DCP) or 1) * (number(PCP) or 1)
    option, interleave = _interleave(situation)
    if ranks == 1 or interleave == 1 or all(_takes_more(situation, each) for each in _sharded_backends(situation)):
        return
    sure = situation.vllm.known and situation.target.latent is False
    yield Finding(
        "dcp-interleave",
        Severity.ERROR if sure else Severity.WARNING,
        f"{option} {interleave} deals tokens out to {ranks} context parallel ranks, and beside a drafter"
        + (" vLLM takes 1 alone" if sure else f" vLLM takes 1 alone, but for {' and '.join(TAKES_MORE_SINCE)}")
        + ": its workers end at start-up",
        {"context_parallel_ranks": ranks, "interleave": interleave},
        f"leave {option} out",
        source="vLLM 0.33 with FLASH_ATTN, two ranks on an H200: MTP with cp_kv_cache_interleave_size > 1 is not"
        " supported; 0.26 to 0.33 v1/worker/cp_utils.py: check_attention_cp_compatibility",
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
    )


def _interleave(situation: Situation) -> tuple[str, int]:
    """The option that counts, and its value."""
    old = situation.options.number(OLD_INTERLEAVE) or 1
    old_wins = (
        situation.vllm.release <= OLD_WINS_WITHOUT_CONNECTOR_UNTIL or situation.options.text(CONNECTOR) is not None
    )
    if old > 1 and old_wins and situation.options.number(DCP):
        return OLD_INTERLEAVE, old
    return INTERLEAVE, situation.options.number(INTERLEAVE) or 1


def _sharded_backends(situation: Situation) -> Iterator[str]:
    """Of the target, and of a drafter with latent attention (others are replicated, and not asked); "" where vLLM
    chooses."""
    yield situation.options.text(BACKEND) or ""
    if situation.drafter.latent:
        yield str(situation.given.get("attention_backend") or "")


def _takes_more(situation: Situation, backend: str) -> bool:
    since = TAKES_MORE_SINCE.get(backend.upper())
    return since is not None and situation.vllm.release >= since
