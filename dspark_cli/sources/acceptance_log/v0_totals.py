"""The totals of a line on drafts of vLLM V0: "Speculative metrics: ...", counted since the start of the process."""

import re

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.sources.acceptance_log.printed_numbers import NUMBER, Contradictory, Unreadable, agrees

START = "Speculative metrics: "

_LINE = re.compile(
    rf"{START}Draft acceptance rate: (?P<rate>{NUMBER}), System efficiency: {NUMBER}, "
    r"Number of speculative tokens: (?P<positions>\d{1,3}), Number of accepted tokens: (?P<accepted>\d{1,15}), "
    r"Number of draft tokens(?: tokens)?: (?P<drafted>\d{1,15}), "
    r"Number of emitted tokens(?: tokens)?: (?P<emitted>\d{1,15})\.\s*"
)


def v0_total(message: str) -> DraftCounters:
    """Every step drafts all positions and emits one token beside the accepted.

    Raises:
        Unreadable, Contradictory: what their names say.
    """
    found = _LINE.fullmatch(message)
    if found is None:
        raise Unreadable
    positions, accepted, drafted, emitted = (
        int(found[name]) for name in ("positions", "accepted", "drafted", "emitted")
    )
    if not positions or drafted % positions or accepted > drafted:
        raise Contradictory
    if drafted and not agrees(found["rate"], accepted / drafted, 0.0005):
        raise Contradictory
    steps = drafted // positions
    if not 0 <= emitted - steps <= accepted:
        raise Contradictory
    return DraftCounters(steps, drafted, emitted - steps, ())
