"""The lines on drafts by what became of them, in numbers and in words."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Tally:
    used: int = 0
    ambiguous: int = 0
    unreadable: int = 0
    contradictory: int = 0
    without_steps: int = 0
    tokens_without_steps: int = 0
    steps_assumed: int = 0
    of_v0: int = 0
    of_diffusion: int = 0
    positions: set[int] = field(default_factory=set)

    @property
    def seen(self) -> int:
        return self.used + self.unreadable + self.contradictory + self.without_steps

    @property
    def exact(self) -> bool:
        return not (self.ambiguous or self.steps_assumed)

    def how_counted(self) -> Iterator[str]:
        if self.ambiguous:
            yield (
                f"on {self.ambiguous} of {_lines(self.used)}, draft steps or tokens by position are worked "
                "out from rounded figures: they agree with all that is printed, so rates by position are within 0.0005 "
                "and mean lengths within 0.005 of the engine's on each line; tokens accepted and drafted are exact"
            )
        if self.steps_assumed:
            yield (
                f"on {self.steps_assumed} of {_lines(self.used)}, of a vLLM that prints no draft steps, "
                "these are taken as drafted over speculative tokens: too few where drafts were shorter"
            )
        if self.of_v0:
            yield (
                "vLLM V0 also counts tokens as accepted that come after a rejected one; here accepted are the tokens "
                "that it emitted, less one a draft step"
            )

    def changed_positions(self) -> Iterator[str]:
        if len(self.positions) > 1:
            lengths = ", ".join(map(str, sorted(self.positions)))
            yield f"the number of draft positions changes in the log ({lengths}); rates are over all draft steps"

    def left_out(self) -> Iterator[str]:
        if self.contradictory:
            yield f"left out: {_lines(self.contradictory)} with figures that contradict each other"
        if self.unreadable:
            yield f"left out: {_lines(self.unreadable)}, cut short or mixed with other text"
        if self.without_steps:
            yield (
                f"left out: {_lines(self.without_steps)}, {self.tokens_without_steps} drafted tokens; "
                "neither they nor the server's start before them tell how many tokens a draft step has"
            )
        if self.of_diffusion:
            yield f"left out: what {_lines(self.of_diffusion, 'denoising')} count; these are no drafts"


def _lines(count: int, what: str = "drafts") -> str:
    return f"{count} line{'s' * (count != 1)} on {what}"
