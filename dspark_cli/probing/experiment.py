"""The probe's experiment: the same prompts cold, restored and cold again, with the counters differenced around
each."""

import random
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from dspark_cli.errors import CannotSay, NotFit
from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.probe import Phase, PhaseKind, ProbeResult, ServerFacts
from dspark_cli.facts.recording import Recording, SourceKind
from dspark_cli.probing.prompt_texts import built_in_texts, shaped
from dspark_cli.sources.acceptance_metrics import Snapshot, between
from dspark_cli.sources.completions import Answers, CompletionsServer, Prompt, complete_all
from dspark_cli.sources.probed_server import finished_in, reset_prefix_cache, settled_snapshot

Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Shows how far a phase of so many requests is; the function it gives marks one as done."""

SALT, LINE, RESET = "cache salt", "a line at its start", "the reset endpoint"
SHARE_OF_CACHE = 0.5
"""Of the KV cache that one phase may fill, so that the next still finds it."""
NOT_FRESH = 0.1
"""Of a cold phase's prompt tokens. With more of them restored, a salt did not make the prompts new."""
USUAL_PROMPT_TOKENS = 1024
BLOCKS_A_PROMPT = 5
SPARE_TOKENS = 32
"""For a line at the start, and for a tokenizer that cuts a text otherwise than its first part."""
CALIBRATION_CHARACTERS = 1200
MOST_TOKENS_A_CHARACTER = 8
"""A character has at most 4 bytes, and a token at least one."""
FEWEST_PROMPT_TOKENS = 64


@dataclass(frozen=True)
class ProbePlan:
    """What to send. `shares` are the parts of a prompt to restore, beside all of it."""

    prompts: int = 24
    prompt_tokens: int | None = None
    output_tokens: int = 64
    shares: tuple[float, ...] = (0.25, 0.5, 0.75)
    short_share: float = 0.25
    concurrency: int = 4
    seed: int = 0
    reset: bool = False

    @property
    def requests(self) -> int:
        """At most: cold, restored whole and cold again, short, and two for each share."""
        return self.prompts * (4 + 2 * len(self.shares)) + 1


class Experiment:
    """One run. `phases` holds what is done, also when the run is interrupted."""

    def __init__(
        self,
        url: str,
        facts: ServerFacts,
        completions: CompletionsServer,
        plan: ProbePlan,
        texts: Sequence[str] | None,
        progress: Progress,
    ) -> None:
        self.url, self.facts, self.completions, self.progress = url, facts, completions, progress
        self.own_texts = texts
        self.plan = plan
        self.freshness = RESET if plan.reset else SALT
        self.phases: list[Phase] = []
        self.notes: list[str] = []
        self.texts: list[str] = []
        self.finished = 0
        """Requests that the counters must hold before they tell of what was sent so far: they may lag."""
        # Not from the seed: a second run must not meet the first one's prefixes.
        self.names = random.Random(secrets.randbits(64))

    def run(self) -> ProbeResult:
        """Raises CannotSay, NotFit: the server answers no request, has no room for a prompt, or goes away."""
        interrupted, stopped = False, None
        try:
            self._run()
        except KeyboardInterrupt:
            interrupted = True
        except _RequestsFail as error:
            stopped = str(error)
        except NotFit as error:
            if not self.phases:
                raise
            stopped = error.what
        return ProbeResult(
            server=self.facts,
            prompts=self.plan.prompts,
            output_tokens=self.plan.output_tokens,
            concurrency=self.plan.concurrency,
            seed=self.plan.seed,
            freshness=self.freshness,
            phases=tuple(self.phases),
            interrupted=interrupted,
            stopped=stopped,
            notes=tuple(self.notes),
        )

    def _run(self) -> None:
        at_first, _ = settled_snapshot(self.url, None, self.completions.timeout_s)
        self.finished = finished_in(at_first)
        self._fit_to_server()
        names = self._cold_and_fresh()
        self._phase("restored whole", PhaseKind.RESTORED, self._asked(names), 1.0)
        for share in sorted(self.plan.shares, reverse=True):
            names = self._new_names()
            served = self._send("serving first parts", self._asked(names, share, output_tokens=1))
            if served.gave_up:
                raise _RequestsFail(served.failed[-1])
            self._phase(f"restored {share:.0%}", PhaseKind.RESTORED, self._asked(names), share)
        self._phase("cold again", PhaseKind.COLD, self._asked(self._new_names()), 0.0)
        if self.plan.short_share:
            self._phase("short, cold", PhaseKind.SHORT, self._ends(self._new_names()), 0.0)

    def _fit_to_server(self) -> None:
        """Learn how many characters make a token, and choose lengths that the model and its cache can hold."""
        plan, facts = self.plan, self.facts
        text = (list(self.own_texts) if self.own_texts else built_in_texts(1, CALIBRATION_CHARACTERS, plan.seed))[0]
        text = text[:CALIBRATION_CHARACTERS]
        answers = self._send("one request to see that it answers", [Prompt(0, text, 1)])
        wanted = prompt_length(plan, [facts])
        prompts = plan.prompts
        if facts.kv_tokens is not None:
            prompts = min(prompts, max(1, int(facts.kv_tokens * SHARE_OF_CACHE) // (wanted + plan.output_tokens)))
        if prompts < plan.prompts:
            self.notes.append(
                f"{prompts} prompts instead of {plan.prompts}: the KV cache holds {facts.kv_tokens:,} tokens"
            )
        characters = int(wanted * characters_a_token([text], answers))
        self.texts = (
            shaped(self.own_texts, prompts, characters)
            if self.own_texts
            else built_in_texts(prompts, characters, plan.seed)
        )
        if len(self.texts) < prompts:
            self.notes.append(f"{len(self.texts)} prompts instead of {prompts}: the file has no more that differ")
        self.plan = replace(plan, prompts=len(self.texts), prompt_tokens=wanted)

    def _cold_and_fresh(self) -> list[str]:
        """The first phase, and its names. Where the server ignores salts, once more with a line at the start of each
        prompt."""
        names = self._new_names()
        phase = self._phase("cold", PhaseKind.COLD, self._asked(names), 0.0)
        if self.freshness == SALT and (_restored(phase) or self._salts_are_ignored()):
            self.freshness = LINE
            self.phases.clear()
            self.notes.append("the server ignores cache salts, so each prompt begins with a line of its own")
            names = self._new_names()
            self._phase("cold", PhaseKind.COLD, self._asked(names), 0.0)
        return names

    def _salts_are_ignored(self) -> bool:
        """Whether a prompt that was just served is found again under another salt."""
        asked = self._asked(self._new_names(), output_tokens=1)[:1]
        before, _ = settled_snapshot(self.url, self.finished, self.completions.timeout_s)
        answers = self._send("one prompt under another salt", asked)
        after, settled = settled_snapshot(self.url, self.finished, self.completions.timeout_s)
        return _restored(phase_of("salt", PhaseKind.COLD, 0.0, answers, before, after, settled))

    def _phase(self, name: str, kind: PhaseKind, prompts: Sequence[Prompt], share: float) -> Phase:
        before, _ = settled_snapshot(self.url, self.finished, self.completions.timeout_s)
        answers = self._send(name, prompts)
        after, settled = settled_snapshot(self.url, self.finished, self.completions.timeout_s)
        phase = phase_of(name, kind, share, answers, before, after, settled)
        if self.freshness == RESET and kind is PhaseKind.COLD and _restored(phase):
            # What the reset leaves is a connector's: this is the way to see its restores alone.
            phase = replace(phase, name=f"{name}: restored by a connector", kind=PhaseKind.RESTORED, asked_share=1.0)
        self.phases.append(phase)
        if answers.gave_up:
            raise _RequestsFail(answers.failed[-1])
        return phase

    def _send(self, name: str, prompts: Sequence[Prompt]) -> Answers:
        with self.progress(name, len(prompts)) as done:
            answers = complete_all(self.completions, prompts, done)
        self.finished += len(answers.requests)
        return answers

    def _new_names(self) -> list[str]:
        """A name for each prompt that makes its prefix new to the server's cache."""
        if self.freshness == RESET:
            reset_prefix_cache(self.url, self.completions.key, self.completions.timeout_s)
        return [f"{self.names.getrandbits(64):016x}" for _ in self.texts]

    def _asked(self, names: Sequence[str], share: float = 1.0, output_tokens: int | None = None) -> list[Prompt]:
        return list(
            self._prompts([text[: max(1, int(len(text) * share))] for text in self.texts], names, output_tokens)
        )

    def _ends(self, names: Sequence[str]) -> list[Prompt]:
        ends = [text[-max(1, int(len(text) * self.plan.short_share)) :] for text in self.texts]
        return list(self._prompts(ends, names, None))

    def _prompts(self, texts: Sequence[str], names: Sequence[str], output_tokens: int | None) -> Iterator[Prompt]:
        engines = self.facts.engines
        for number, (text, name) in enumerate(zip(texts, names, strict=True)):
            yield Prompt(
                number,
                f"# {name}\n{text}" if self.freshness == LINE else text,
                output_tokens or self.plan.output_tokens,
                salt=name if self.freshness == SALT else None,
                engine=_rank(engines[number % len(engines)]) if len(engines) > 1 else None,
            )


class _RequestsFail(Exception):
    """So many that the phases to come would tell nothing, and take a timeout each."""


def prompt_length(plan: ProbePlan, servers: Sequence[ServerFacts]) -> int:
    """Tokens of a prompt: as asked, else enough for several blocks; and no more than the servers take.

    Raises:
        NotFit: a server's context has no room for a prompt beside its answer.
    """
    usual = max([USUAL_PROMPT_TOKENS, *(BLOCKS_A_PROMPT * (server.block_tokens or 0) for server in servers)])
    longest = [server.max_model_len for server in servers if server.max_model_len is not None]
    wanted = min([plan.prompt_tokens or usual, *(length - plan.output_tokens - SPARE_TOKENS for length in longest)])
    if wanted < FEWEST_PROMPT_TOKENS:
        raise NotFit(
            f"a context of {min(longest):,} tokens has no room for a prompt beside {plan.output_tokens:,} of output",
            "ask for fewer: --output-tokens",
        )
    return wanted


def characters_a_token(texts: Sequence[str], answers: Answers) -> float:
    """Of `texts`, by the answers to those of them that were answered.

    Raises:
        CannotSay: there is none, or it counts what no tokenizer can.
    """
    if not answers.requests:
        raise CannotSay(f"the server answers no request: {answers.failed[0]}", "see its log")
    tokens = sum(request.prompt_tokens for request in answers.requests)
    characters = sum(len(texts[request.prompt]) for request in answers.requests)
    if tokens > MOST_TOKENS_A_CHARACTER * characters:
        raise CannotSay(
            f"the server counts {tokens:,} tokens in a text of {characters:,} characters",
            "probe the server itself, not a proxy that adds to prompts",
        )
    return characters / tokens


def _rank(engine: str) -> int | None:
    """The data parallel rank that an engine's label names; None of what is no rank."""
    return int(engine) if re.fullmatch("[0-9]{1,6}", engine) else None


def _restored(phase: Phase) -> bool:
    return (phase.cached_tokens or 0) > NOT_FRESH * phase.prompt_tokens


def phase_of(
    name: str, kind: PhaseKind, share: float, answers: Answers, before: Snapshot, after: Snapshot, settled: bool
) -> Phase:
    """The phase between two snapshots of one server."""
    window = between([before], [after])
    recording: Recording = replace(window, source=SourceKind.PROBE, since_start=())
    counted = recording.counted
    finished = recording.traffic.finished_requests
    others = None if finished is None else max(0, finished - len(answers.requests))
    return Phase(
        name=name,
        kind=kind,
        asked_share=share,
        seconds=answers.seconds,
        requests=answers.requests,
        failed=answers.failed,
        recording=recording,
        profile=AcceptanceProfile.of(counted) if counted.drafts else None,
        other_requests=others,
        settled=settled,
        steps_merged=_merged(answers, counted.drafts if others == 0 else None),
    )


def _merged(answers: Answers, counted: int | None) -> float | None:
    if answers.requests and all(request.told for request in answers.requests):
        return 0.0
    return 1 - sum(request.draft_steps for request in answers.requests) / counted if counted else None
