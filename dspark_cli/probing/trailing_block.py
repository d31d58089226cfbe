"""What the trailing block costs: two servers, one that drops it from every prefix hit and one that keeps it.

For a drafter's sake vLLM computes the last restored block of every hit again; `disable_eagle_block_drop` keeps it
(since 0.33 it is kept for DFlash and DSpark whatever that says). Many requests with one shared prefix show what that is
worth in time to first token, and what it does to the drafts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.probe import Comparison, Phase, PhaseKind, ServerFacts
from dspark_cli.findings.acceptance.restored_prefixes import HARMED_BELOW
from dspark_cli.probing.comparison import compare
from dspark_cli.probing.experiment import (
    CALIBRATION_CHARACTERS,
    ProbePlan,
    Progress,
    characters_a_token,
    phase_of,
)
from dspark_cli.probing.probe_report import PhaseSummary, summary
from dspark_cli.probing.prompt_texts import built_in_texts, shaped
from dspark_cli.probing.verdict import UNHARMED_ABOVE
from dspark_cli.sources.completions import CompletionsServer, Prompt, complete_all
from dspark_cli.sources.probed_server import finished_in, settled_snapshot

SUFFIX_SHARE = 0.1
"""Of a prompt: what is its own. The rest is shared by all."""


@dataclass(frozen=True)
class Side:
    """One server. Cached and computed tokens are means of a request; None where others' requests are counted too."""

    url: str
    block_tokens: int | None
    cached_tokens: float | None
    computed_tokens: float | None
    first_tokens: PhaseSummary
    """Requests for one token: what a prefill costs."""
    drafts: PhaseSummary
    """The same prefix again, with an answer: what the drafts are worth."""


@dataclass(frozen=True)
class TrailingBlockReport:
    """`b` against `a`. `acceptance` is over the same prompts; None where they share none."""

    a: Side
    b: Side
    more_cached_tokens: float | None
    ttft_p50_change: float | None
    """(b - a) / a."""
    requests_per_s_change: float | None
    acceptance: Comparison | None
    worse: bool | None
    """Whether b surely drafts worse; None where it cannot be said."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SharedPrefix:
    """The texts of one run: the same for both servers."""

    prefix: str
    suffixes: tuple[str, ...]


def shared_prefix(plan: ProbePlan, ratio: float, texts: Sequence[str] | None, tokens: int) -> SharedPrefix:
    """`plan.prompts` prompts of `tokens` tokens that share all but their last tenth; `ratio` is characters a
    token.

    Raises:
        BadInput: there are not enough texts.
    """
    characters = int(tokens * ratio)
    own = max(40, int(characters * SUFFIX_SHARE))
    if texts:
        parts = shaped(texts, plan.prompts + 1, characters)
        suffixes = dict.fromkeys(part[:own] for part in parts[1:])
        if len(suffixes) < plan.prompts:
            raise BadInput(
                f"the file's texts make {len(suffixes)} endings that differ, and {plan.prompts} prompts need one each",
                "give a file with more texts, or fewer prompts: --prompt-count",
            )
        return SharedPrefix(parts[0][: characters - own], tuple(suffixes))
    endings = built_in_texts(plan.prompts, own, plan.seed)
    return SharedPrefix(built_in_texts(1, max(1, characters - own), plan.seed + 1)[0], tuple(endings))


def calibrate(server: CompletionsServer, texts: Sequence[str] | None, seed: int) -> float:
    """Characters a token, from one request.

    Raises:
        CannotSay: the server answers no request, or counts what no tokenizer can.
    """
    text = (list(texts) if texts else built_in_texts(1, CALIBRATION_CHARACTERS, seed))[0][:CALIBRATION_CHARACTERS]
    answers = complete_all(server, [Prompt(0, text, 1)], lambda: None)
    return characters_a_token([text], answers)


def measure_side(
    url: str, facts: ServerFacts, server: CompletionsServer, plan: ProbePlan, texts: SharedPrefix, progress: Progress
) -> tuple[Side, Phase]:
    """One server's figures, and the phase with answers, for the comparison of drafts.

    Raises:
        CannotSay: requests fail.
    """
    salt = token_hex(8)

    def prompts(output_tokens: int, mark: str) -> list[Prompt]:
        texts_here = (f"{texts.prefix}\n{mark}\n{suffix}" for suffix in texts.suffixes)
        return [Prompt(number, text, output_tokens, salt) for number, text in enumerate(texts_here)]

    with progress(f"{facts.url}: the shared prefix", 1) as done:
        complete_all(server, [Prompt(0, texts.prefix, 1, salt)], done)
    first = _phase(url, facts.url, server, "first tokens", prompts(1, "# first"), progress)
    drafts = _phase(url, facts.url, server, "answers", prompts(plan.output_tokens, "# then"), progress)
    cached = first.cached_tokens
    side = Side(
        url=facts.url,
        block_tokens=facts.block_tokens,
        cached_tokens=cached,
        computed_tokens=None if cached is None else first.prompt_tokens - cached,
        first_tokens=summary(first),
        drafts=summary(drafts),
    )
    return side, drafts


def compare_sides(a: tuple[Side, Phase], b: tuple[Side, Phase], seed: int) -> TrailingBlockReport:
    acceptance = compare([a[1]], b[1], seed)
    more = None if a[0].cached_tokens is None or b[0].cached_tokens is None else b[0].cached_tokens - a[0].cached_tokens
    notes = []
    if more is not None and more <= 0:
        notes.append(
            "B restores no more than A: is disable_eagle_block_drop set there, and prefix caching on? vLLM 0.33 and"
            " later drop no block for DFlash and DSpark, so there the option changes nothing"
        )
    if more is None:
        notes.append("the servers had other requests meanwhile, so restored tokens are not known")
    return TrailingBlockReport(
        a=a[0],
        b=b[0],
        more_cached_tokens=more,
        ttft_p50_change=_change(a[0].first_tokens.ttft_p50_s, b[0].first_tokens.ttft_p50_s),
        requests_per_s_change=_change(a[0].first_tokens.requests_per_s, b[0].first_tokens.requests_per_s),
        acceptance=acceptance,
        worse=_worse(acceptance),
        notes=tuple(notes),
    )


def _phase(
    url: str, shown: str, server: CompletionsServer, name: str, prompts: Sequence[Prompt], progress: Progress
) -> Phase:
    """`shown` is `url` without the credentials that may be in it."""
    before, _ = settled_snapshot(url, None, server.timeout_s)
    with progress(f"{shown}: {name}", len(prompts)) as done:
        answers = complete_all(server, prompts, done)
    after, settled = settled_snapshot(url, finished_in(before) + len(answers.requests), server.timeout_s)
    if answers.gave_up or not answers.requests:
        raise CannotSay(f"{shown} does not answer its requests: {answers.failed[0]}", "see its log")
    return phase_of(name, PhaseKind.RESTORED, 1.0, answers, before, after, settled)


def _worse(acceptance: Comparison | None) -> bool | None:
    if acceptance is None or acceptance.kept_low is None or acceptance.kept_high is None:
        return None
    if acceptance.kept_high < HARMED_BELOW:
        return True
    return False if acceptance.kept_low > UNHARMED_ABOVE else None


def _change(before: float | None, after: float | None) -> float | None:
    return None if not before or after is None else (after - before) / before
