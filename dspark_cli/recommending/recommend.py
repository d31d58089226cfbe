"""From a situation to the settings: every rule is asked, and the user's own flags win."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dspark_cli.draft_context.policy import Policy
from dspark_cli.errors import NotFit
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.patches.found_vllm import FoundVllm
from dspark_cli.recommending.gather import Asked, gather
from dspark_cli.recommending.recommendation import Choice, Place, Recommendation
from dspark_cli.recommending.rules.draft_tokens import KEY as TOKENS
from dspark_cli.recommending.rules.draft_tokens import SCHEDULE
from dspark_cli.recommending.rules.registry import RULES
from dspark_cli.recommending.saying import USER
from dspark_cli.recommending.situation import Situation
from dspark_cli.serving.secrets import MASK, masked_keys, masked_text, without_masked, without_secrets

OWN_KEYS = ("method", "model", TOKENS)
"""Of the speculative configuration, those that `dspark-tool serve` has options for."""


def recommend_for(asked: Asked, found: FoundVllm, distribution: str) -> Recommendation:
    """For what the command line asks, on this machine. Raises BadInput, NotFit: as `gather`."""
    return recommend(gather(asked, found, distribution), asked.vllm_args)


def recommend(situation: Situation, vllm_args: Sequence[str]) -> Recommendation:
    """`vllm_args` are the user's, without a speculative configuration."""
    said = [part for rule in RULES for part in rule(situation)]
    findings = [part for part in said if isinstance(part, Finding)]
    choices = [_users_wins(part, situation) for part in said if isinstance(part, Choice)]
    choices += _users_other_keys(choices, situation)
    chosen = {c.setting: c.value for c in choices if c.place is Place.SPECULATIVE and c.value is not None}
    config: dict[str, Any] = {"method": chosen.pop("method"), "model": situation.drafter.name, **chosen}
    flags = [c for c in choices if c.place is Place.VLLM and c.value is not None and not c.by_user]
    return Recommendation(
        target=situation.target.name,
        drafter=situation.drafter.name,
        vllm=str(situation.vllm),
        device=str(situation.device),
        model_runner="V1" if situation.on_v1 else "V2",
        choices=tuple(choices),
        refused=tuple(finding for finding in findings if finding.severity is Severity.ERROR),
        traps=tuple(finding for finding in findings if finding.severity is not Severity.ERROR),
        not_checked=tuple(_not_checked(said, situation)),
        speculative_config=config,
        vllm_args=(*vllm_args, *(word for flag in flags for word in (flag.setting, str(flag.value)))),
        tool_args=tuple(_tool_args(config, situation)),
    )


def _users_wins(choice: Choice, situation: Situation) -> Choice:
    own = _own(choice, situation)
    if own is None:
        return choice
    if own == choice.value:
        return replace(choice, by_user=True)
    instead = f"recommended is {choice.value}: " if choice.value is not None else "left out, it would be "
    return replace(choice, value=own, by_user=True, reason=f"yours; {instead}{choice.reason}", source=USER)


def _own(choice: Choice, situation: Situation) -> Any:
    if choice.place is Place.VLLM:
        return situation.options.value(choice.setting)
    if choice.place is Place.SPECULATIVE:
        own = situation.given.get(choice.setting)
        return situation.tokens_option if own is None and choice.setting == TOKENS else own
    return None


def _users_other_keys(choices: Sequence[Choice], situation: Situation) -> Iterator[Choice]:
    """What the user put into the speculative configuration that no rule speaks of."""
    spoken_of = {choice.setting for choice in choices if choice.place is Place.SPECULATIVE} | {"model"}
    for key, value in situation.given.items():
        if key not in spoken_of:
            yield Choice(Place.SPECULATIVE, key, value, "yours", USER, Confidence.CERTAIN, by_user=True)


def _not_checked(said: Sequence[Any], situation: Situation) -> Iterator[NotChecked]:
    yield from (part for part in said if isinstance(part, NotChecked))
    if not situation.vllm.known:
        yield NotChecked("release", f"the rules were read in vLLM 0.26 to 0.33, not in {situation.vllm.version}")
    if situation.device.is_gpu and situation.vllm.known and situation.vllm.release < (0, 30):
        yield NotChecked(
            "model runner", "before 0.30 targets of experts or recurrent layers may run on V1; V2 is assumed"
        )
    if situation.target.layers is None:
        yield NotChecked(
            "target", "the target's config.json cannot be read here, or does not say how many layers it has"
        )


def _tool_args(config: dict[str, Any], situation: Situation) -> Iterator[str]:
    if situation.method_of_checkpoint is not situation.drafter.method:
        yield from ("--method", str(situation.drafter.method))
    if config.get(TOKENS) != situation.drafter.trained_tokens and TOKENS in config:
        yield from ("--tokens", str(config[TOKENS]))
    if situation.policy != Policy.VALIDITY:
        yield from ("--draft-context", situation.policy)


def command_words(recommendation: Recommendation) -> list[str]:
    """The words of the `dspark-tool serve` that starts it; secrets that were masked are left out."""
    extra = {key: value for key, value in pasted_config(recommendation).items() if key not in OWN_KEYS}
    behind = [
        *without_masked(recommendation.vllm_args),
        *(("--speculative-config", json.dumps(extra)) if extra else ()),
    ]
    start = ["dspark-tool", "serve", recommendation.target, "--draft", recommendation.drafter]
    return [*start, *recommendation.tool_args, *(("--", *behind) if behind else ())]


def without_secrets_shown(recommendation: Recommendation) -> Recommendation:
    """A copy to print and to save: whatever is secret in it is masked."""
    return replace(
        recommendation,
        target=masked_text(recommendation.target),
        choices=tuple(_masked(choice) for choice in recommendation.choices),
        speculative_config=masked_keys(recommendation.speculative_config),
        vllm_args=tuple(without_secrets(recommendation.vllm_args)),
    )


def _masked(choice: Choice) -> Choice:
    return replace(choice, value=masked_keys({choice.setting: choice.value})[choice.setting])


def pasted_config(recommendation: Recommendation) -> dict[str, Any]:
    """The speculative configuration without what is masked in it."""
    return {key: value for key, value in recommendation.speculative_config.items() if MASK not in json.dumps(value)}


def has_secrets(recommendation: Recommendation) -> bool:
    """Whether something is masked in it that `command_words` leaves out."""
    return any(MASK in word for word in recommendation.vllm_args) or (
        len(pasted_config(recommendation)) < len(recommendation.speculative_config)
    )


def require_no_conflict(recommendation: Recommendation) -> None:
    """Raises NotFit where settings cannot work together."""
    if not recommendation.refused:
        return
    first, *others = recommendation.refused
    more = f" (and {len(others)} more)" if others else ""
    raise NotFit(
        f"{first.what}{more}",
        f"{first.advice}; --allow-conflicts goes on all the same; all reasons: dspark-tool recommend",
    )


def settings_for_any_tokens(recommendation: Recommendation) -> tuple[str, ...]:
    """Arguments of vLLM that hold whatever number of tokens is drafted: the user's and what was chosen beside them."""
    own = (*OWN_KEYS, SCHEDULE)
    beside = {key: value for key, value in recommendation.speculative_config.items() if key not in own}
    return (*recommendation.vllm_args, *(("--speculative-config", json.dumps(beside)) if beside else ()))
