"""How many tokens in a row a context-parallel rank gets: beside a drafter, nearly all attention takes one alone."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, Severity
from dspark_cli.recommending.connector import connectors_named
from dspark_cli.recommending.rules.context_parallel import BACKEND, DCP
from dspark_cli.recommending.situation import CONNECTOR, Situation

INTERLEAVE = "--cp-kv-cache-interleave-size"
DEALS_OUT_BLOCKS = "NixlConnector"
DEALS_OUT_BLOCKS_SINCE = (0, 30)
TAKES_MORE_SINCE = {"FLASHMLA_SPARSE": (0, 30), "TOKENSPEED_MLA": (0, 32)}
"""Both are for targets with latent attention."""


def rule(situation: Situation) -> Iterator[Finding]:
    ranks, interleave = situation.options.number(DCP) or 1, _interleave(situation)
    if ranks == 1 or interleave in (None, 1) or _backend_takes_more(situation):
        return
    backend = _backend(situation)
    unsure = backend is None and situation.target.latent
    of_connector = isinstance(interleave, str)
    yield Finding(
        "dcp-interleave",
        Severity.WARNING if unsure else Severity.ERROR,
        (f"{DEALS_OUT_BLOCKS} has whole blocks dealt" if of_connector else f"{INTERLEAVE} {interleave} deals tokens")
        + f" out to {ranks} context parallel ranks, and beside a drafter"
        + (f" {backend} takes" if backend else " most attention takes")
        + " tokens one by one alone: vLLM's workers end at start-up",
        {"decode_context_parallel_size": ranks, "interleave": interleave, "attention_backend": backend},
        f"{INTERLEAVE} 1" if of_connector else f"leave {INTERLEAVE} out",
        source="vLLM 0.33 with FLASH_ATTN, two ranks on an H200: MTP with cp_kv_cache_interleave_size > 1 is not"
        " supported; 0.26 to 0.33 v1/worker/cp_utils.py: check_attention_cp_compatibility",
        confidence=Confidence.LIKELY if unsure or of_connector else Confidence.CERTAIN,
    )


def _interleave(situation: Situation) -> int | str | None:
    """Tokens, or "block" where vLLM takes it for the connector's sake."""
    asked = situation.options.number(INTERLEAVE)
    if asked is not None:
        return asked
    connectors = connectors_named(situation.options.text(CONNECTOR))
    blocks = DEALS_OUT_BLOCKS in connectors and situation.vllm.release >= DEALS_OUT_BLOCKS_SINCE
    return "block" if blocks else None


def _backend(situation: Situation) -> str | None:
    backend = situation.options.text(BACKEND)
    return None if backend is None else backend.upper()


def _backend_takes_more(situation: Situation) -> bool:
    since = TAKES_MORE_SINCE.get(_backend(situation) or "")
    return since is not None and situation.vllm.release >= since
