"""What an engine has counted of its draft steps."""

from dataclasses import dataclass
from itertools import pairwise

SLACK = 100
"""A page of several API server processes is not of one moment: a step may be in one counter and not yet in another."""


@dataclass(frozen=True)
class DraftCounters:
    """Draft steps, tokens drafted, tokens accepted, tokens accepted by draft position (empty where not known).

    `born` is when the counters were created (seconds since 1970), where the server says it.
    """

    drafts: int
    draft_tokens: int
    accepted: int
    accepted_at: tuple[int, ...]
    born: float | None = None

    def __add__(self, other: "DraftCounters") -> "DraftCounters":
        return self._combined(other, 1)

    def __sub__(self, other: "DraftCounters") -> "DraftCounters":
        return self._combined(other, -1)

    def began_anew_since(self, earlier: "DraftCounters") -> bool:
        """Whether the server was restarted in between: other counters than before, or one that went back."""
        if self.born is not None and earlier.born is not None and self.born != earlier.born:
            return True
        step = self - earlier
        return min(step.drafts, step.draft_tokens, step.accepted, *step.accepted_at) < 0

    def implausible(self) -> str | None:
        """Why no engine can have counted this: only a draft accepted at one position reaches the next."""
        if min(self.drafts, self.draft_tokens, self.accepted, 0, *self.accepted_at) < 0:
            return "a count is below zero"
        if any(here > before for before, here in pairwise((self.drafts, *self.accepted_at))):
            return "more is accepted at a position than drafts reached it"
        if self.accepted > self.draft_tokens:
            return "more tokens are accepted than drafted"
        if self.accepted_at and abs(sum(self.accepted_at) - self.accepted) > SLACK + self.accepted // 50:
            return "the positions do not add up to the accepted tokens"
        return None

    def _combined(self, other: "DraftCounters", sign: int) -> "DraftCounters":
        length = max(len(self.accepted_at), len(other.accepted_at))
        mine, theirs = (at + (0,) * (length - len(at)) for at in (self.accepted_at, other.accepted_at))
        return DraftCounters(
            self.drafts + sign * other.drafts,
            self.draft_tokens + sign * other.draft_tokens,
            self.accepted + sign * other.accepted,
            tuple(a + sign * b for a, b in zip(mine, theirs, strict=True)),
        )


NOTHING = DraftCounters(0, 0, 0, ())
