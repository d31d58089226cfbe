"""What a server did meanwhile: tokens, prefix hits, preemptions."""

from dataclasses import astuple, dataclass, replace


@dataclass(frozen=True)
class Traffic:
    """Counts over a span; None where the source does not tell. Prefix queries and hits are in tokens."""

    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    external_queries: int | None = None
    """Tokens asked of a KV connector."""
    external_hits: int | None = None
    preemptions: int | None = None
    finished_requests: int | None = None

    def __add__(self, other: "Traffic") -> "Traffic":
        return self._combined(other, 1)

    def __sub__(self, other: "Traffic") -> "Traffic":
        return self._combined(other, -1)

    @property
    def prefix_hit_rate(self) -> float | None:
        return _share(self.prefix_hits, self.prefix_queries)

    @property
    def restored_rate(self) -> float | None:
        """Of the prompt tokens, by the server's own cache or by a KV connector, which is asked for what that lacks."""
        if self.prefix_queries and self.prefix_hits is not None:
            return min(1.0, (self.prefix_hits + (self.external_hits or 0)) / self.prefix_queries)
        return self.external_hit_rate

    @property
    def external_hit_rate(self) -> float | None:
        return _share(self.external_hits, self.external_queries)

    @property
    def plausible(self) -> "Traffic":
        """With hits that are more than queries left unknown."""
        found = self
        if _more(self.prefix_hits, self.prefix_queries):
            found = replace(found, prefix_queries=None, prefix_hits=None)
        if _more(self.external_hits, self.external_queries):
            found = replace(found, external_queries=None, external_hits=None)
        return found

    @property
    def went_back(self) -> bool:
        """Whether one of the counts is below zero, as the difference over a restart is."""
        return any(count is not None and count < 0 for count in astuple(self))

    def _combined(self, other: "Traffic", sign: int) -> "Traffic":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Traffic(*(None if a is None or b is None else a + sign * b for a, b in pairs))


NO_TRAFFIC = Traffic(0, 0, 0, 0, 0, 0, 0, 0)
UNKNOWN_TRAFFIC = Traffic()


def _more(part: int | None, total: int | None) -> bool:
    return part is not None and total is not None and part > total


def _share(part: int | None, total: int | None) -> float | None:
    return part / total if part is not None and total else None
