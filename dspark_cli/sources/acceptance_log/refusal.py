"""Why a log tells nothing of draft acceptance, and what would."""

from dspark_cli.errors import CannotSay
from dspark_cli.sources.acceptance_log.tally import Tally

_WAIT = "send it requests and wait for vLLM's statistics, every 10 s; --disable-log-stats must not be given"


def no_counts(name: str, tally: Tally, speculates: bool | None) -> CannotSay:
    """`speculates` is what the starts of the servers say, None where none does."""
    if tally.seen:
        return CannotSay(f"{name}: {'; '.join(tally.left_out())}", "give the whole log, as vLLM wrote it")
    if tally.of_diffusion:
        return CannotSay(
            f"{name} is of a diffusion model: it has denoising steps and no drafts",
            "give the log of a server with a draft model",
        )
    if speculates:
        return CannotSay(f"{name} shows a server that speculates, but no line on its drafts", _WAIT)
    if speculates is False:
        return CannotSay(
            f"{name} shows a server without speculative decoding",
            "start it with --speculative-config, or give the log of one that was",
        )
    return CannotSay(
        f"{name} has no line of vLLM's on drafts, and none on the server's start that tells if it speculates",
        f"give the log of a vLLM server in vLLM's own format; {_WAIT}",
    )
