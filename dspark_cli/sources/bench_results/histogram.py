"""Acceptance histograms of requests, which vLLM sends with --per-request-spec-decode-metrics."""

from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.sources.bench_results.counts import MOST_POSITIONS, count, plausible, shortened, unusable


class Histogram:
    """Draft steps by the number of tokens that they accepted, summed over requests."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._draft_tokens = 0
        self._most_drafted = 0

    @property
    def steps(self) -> int:
        return self._steps.total()

    def add(self, steps: object, draft_tokens: object, most_drafted: object = None) -> None:
        """`steps` is a list by tokens accepted (vLLM's own form), or an object with those numbers as keys (aiperf's).

        `most_drafted` is the number of draft positions, where it is known: those at its end may accept nothing.

        Raises:
            NotFit: neither of them.
        """
        if isinstance(steps, list):
            steps = dict(enumerate(steps))
        if not isinstance(steps, Mapping):
            raise unusable(f"an acceptance histogram is {shortened(steps)}")
        for accepted, times in steps.items():
            self._steps[_tokens(accepted)] += count(times, "acceptance histogram")
        self._draft_tokens += count(draft_tokens, "number of draft tokens")
        if most_drafted is not None:
            self._most_drafted = max(self._most_drafted, _tokens(most_drafted))

    def counted(self, positions: int = 0) -> DraftCounters:
        """A step that accepted j tokens accepted at each of the first j positions, of which there are at least so many.

        Raises:
            NotFit: no engine can have counted this.
        """
        positions = max(min(positions, MOST_POSITIONS), self._most_drafted, max(self._steps, default=0))
        exactly = [self._steps[accepted] for accepted in range(positions + 1)]
        at_least = list(accumulate(reversed(exactly)))[::-1]
        return plausible(DraftCounters(at_least[0], self._draft_tokens, sum(at_least[1:]), tuple(at_least[1:])))


def _tokens(value: object) -> int:
    text = str(value) if isinstance(value, str) or type(value) is int else ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and int(text) <= MOST_POSITIONS):
        raise unusable(f"a step accepted {shortened(value)} tokens")
    return int(text)
