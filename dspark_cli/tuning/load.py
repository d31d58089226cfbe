"""The load under which a server is measured: requests of its own, or another tool's."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dspark_cli.errors import NotFit
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.probe import ProbedRequest, ServerFacts
from dspark_cli.facts.tuning import AnsweredRequest, Load
from dspark_cli.probing.experiment import CALIBRATION_CHARACTERS, ProbePlan, characters_a_token, prompt_length
from dspark_cli.probing.prompt_texts import built_in_texts, shaped
from dspark_cli.sources.completions import Answers, CompletionsServer, Prompt, complete_all

Sending = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Shows how far so many requests are; the function it gives marks one as done."""
BUILT_IN = "builtin"
WARM_UP_TOKENS = 16
CALIBRATION_TEXTS = 8
"""One may be prose where the others are code: its characters a token were 1.6 to 3 where those of all were 2.5."""
DIGITS = 6


@dataclass(frozen=True)
class Sent:
    """What came of one load. `counted` is what the tool says of drafts, where it says it."""

    requests: tuple[AnsweredRequest, ...]
    failed: tuple[str, ...]
    seconds: float
    counted: DraftCounters | None = None


class LoadTool(Protocol):
    """Sends the requests of one measurement; a child of its own prints to `log`."""

    def __call__(
        self, server: CompletionsServer, texts: Sequence[str], load: Load, sending: Sending, log: Path
    ) -> Sent: ...


@dataclass
class Texts:
    """The prompts: the same for every server, cut to the asked length by the first server's count of tokens."""

    load: Load
    own: Sequence[str] | None
    known: list[str] = field(default_factory=list)

    def at_least(self, count: int) -> list[str]:
        """`count` of them; a file's come again where it has fewer."""
        return [self.known[number % len(self.known)] for number in range(count)]

    def fit_to(self, facts: ServerFacts, server: CompletionsServer, most: int) -> None:
        """Ask the server how many characters of a few texts make a token, and cut `most` texts accordingly; once.

        Raises:
            CannotSay, NotFit: the server answers no request, or has no room for a prompt.
        """
        if self.known:
            return
        load = self.load
        some = self.own or built_in_texts(CALIBRATION_TEXTS, CALIBRATION_CHARACTERS, load.seed)
        asked = [text[:CALIBRATION_CHARACTERS] for text in some[:CALIBRATION_TEXTS]]
        prompts = [Prompt(number, text, 1, salt=salt()) for number, text in enumerate(asked)]
        answers = complete_all(server, prompts, lambda: None)
        plan = ProbePlan(prompt_tokens=load.prompt_tokens, output_tokens=load.output_tokens)
        characters = int(prompt_length(plan, [facts]) * characters_a_token(asked, answers))
        self.known = shaped(self.own, most, characters) if self.own else built_in_texts(most, characters, load.seed)


def warm_up(server: CompletionsServer, texts: Sequence[str], sending: Sending) -> None:
    """As many requests at a time as will be measured, with texts that will not be.

    Raises:
        NotFit: the server answers none.
    """
    prompts = [Prompt(number, text, WARM_UP_TOKENS, salt=salt()) for number, text in enumerate(texts)]
    with sending("warming up", len(prompts)) as done:
        answers = complete_all(server, prompts, done)
    if not answers.requests or answers.gave_up:
        raise NotFit(f"the server does not answer: {answers.failed[0]}", "see its log")


def built_in(server: CompletionsServer, texts: Sequence[str], load: Load, sending: Sending, log: Path) -> Sent:
    """Stream completions at temperature 0, each with a cache salt of its own, so that no prefix is found again; nothing
    goes to `log`."""
    prompts = [Prompt(number, text, load.output_tokens, salt=salt()) for number, text in enumerate(texts)]
    with sending("measuring", len(prompts)) as done:
        answers = complete_all(server, prompts, done)
    return _sent(answers)


def _sent(answers: Answers) -> Sent:
    return Sent(tuple(map(_request, answers.requests)), answers.failed, round(answers.seconds, DIGITS))


def _request(request: ProbedRequest) -> AnsweredRequest:
    return AnsweredRequest(
        request.prompt, round(request.ttft_s, DIGITS), round(request.seconds, DIGITS), request.output_tokens
    )


def salt() -> str:
    """A new one; it begins with a letter, for some tools take digits for a number."""
    return f"s{secrets.token_hex(8)}"
