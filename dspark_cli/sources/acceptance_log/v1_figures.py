"""The figures of a line on drafts of vLLM V1: "SpecDecoding metrics: ...", in the words of 0.8 to 0.33."""

import re
from dataclasses import dataclass
from itertools import pairwise

from dspark_cli.sources.acceptance_log.printed_numbers import NUMBER, Contradictory, Unreadable, agrees

START = "SpecDecoding metrics: "
MOST_POSITIONS = 256

_LINE = re.compile(
    rf"{START}(?:Draft acceptance rate: (?P<rate_first>{NUMBER})%, )?"
    rf"(?:Mean acceptance length: (?P<length>{NUMBER}), )?"
    rf"(?:Accepted throughput: {NUMBER} tokens/s, Drafted throughput: {NUMBER} tokens/s, )?"
    r"Accepted: (?P<accepted>\d{1,11}) tokens, Drafted: (?P<drafted>\d{1,11}) tokens"
    rf"(?:, Per-position acceptance rate: (?P<rates>{NUMBER}(?:, {NUMBER}){{0,{MOST_POSITIONS - 1}}}))?"
    rf"(?:, Avg Draft acceptance rate: (?P<rate_last>{NUMBER})%)?\s*"
)


@dataclass(frozen=True)
class Figures:
    """What a line prints. Nothing in it but the two counts is exact.

    `length` is tokens accepted a draft step, in hundredths; `rates` are the shares of steps that accepted at each
    position, in thousandths, and empty where nothing was drafted, or where the line is of a vLLM without them.
    """

    accepted: int
    drafted: int
    length: int = 0
    rates: tuple[int, ...] = ()

    @property
    def tell_steps(self) -> bool:
        return bool(self.rates) or self.drafted == 0


def figures_in(message: str) -> Figures:
    """Raises Unreadable, or Contradictory where that can be seen at once."""
    found = _LINE.fullmatch(message)
    if found is None:
        raise Unreadable
    accepted, drafted = int(found["accepted"]), int(found["drafted"])
    rate = found["rate_first"] or found["rate_last"]
    if accepted > drafted or (rate and not _is_rate(rate, accepted, drafted)):
        raise Contradictory
    if not found["length"] or not found["rates"] or (not drafted and "n" in found["length"]):
        return Figures(accepted, drafted)
    if "n" in found["length"] + found["rates"]:  # nan or inf, though there are drafts
        raise Contradictory
    rates = tuple(round(float(rate) * 1000) for rate in found["rates"].split(", "))
    if any(here > before for before, here in pairwise((1000, *rates))):
        raise Contradictory
    return Figures(accepted, drafted, _without_own_token(round(float(found["length"]) * 100), sum(rates)), rates)


def _is_rate(percent: str, accepted: int, drafted: int) -> bool:
    return agrees(percent, accepted / drafted * 100, 0.05) if drafted else percent == "nan"


def _without_own_token(length: int, rates: int) -> int:
    """vLLM 0.8 does not count the target's own token; the rates add up to the length without it."""
    counts_it = length >= 100 and abs(length - 100 - rates / 10) <= abs(length - rates / 10)
    return length - 100 if counts_it else length
