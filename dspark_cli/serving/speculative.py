"""The speculative configuration for a target and a drafter."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dspark_cli.errors import BadInput
from dspark_cli.facts.drafter import drafter_facts
from dspark_cli.serving.secrets import SECRET_KEY, masked_text
from dspark_cli.sources.checkpoint import (
    LONGEST_BLOCK,
    Checkpoint,
    Method,
    drafter_method,
    read_checkpoint,
    trained_draft_tokens,
)

CONFIG_OPTIONS = ("--speculative-config", "-sc")
DOTTED_OPTIONS = tuple(f"{option}." for option in CONFIG_OPTIONS)
REPLACED_OPTIONS = ("--spec-method", "--spec-model", "--spec-tokens")
LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Speculation:
    method: Method
    drafter: str
    tokens: int
    doubts: tuple[str, ...] = ()
    """Where the user's choice is not what the checkpoint was trained for; to be shown, not to stop at."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the configuration."""
    draft_layers: int | None = None
    """How many layers the drafter gives a KV cache; None where its checkpoint does not say."""

    def config(self) -> dict[str, Any]:
        """As vLLM's --speculative-config takes it."""
        own = {"method": str(self.method), "model": self.drafter, "num_speculative_tokens": self.tokens}
        return {**own, **self.settings}

    def with_settings(self, config: Mapping[str, Any]) -> "Speculation":
        """With the number of tokens and the further keys of `config`."""
        settings = {key: value for key, value in config.items() if key not in self.config()}
        return replace(self, tokens=config.get("num_speculative_tokens", self.tokens), settings=settings)

    def merged_with(self, given: dict[str, Any]) -> dict[str, Any]:
        """The configuration with the user's own keys in it, which win: say, the drafter's attention backend.

        Raises:
            BadInput: they name another drafter or method.
        """
        require_agreement(given, self.method, self.drafter)
        return {**self.config(), **given}


def require_agreement(given: Mapping[str, Any], method: Method, drafter: str) -> None:
    """Raises BadInput where the user's speculative configuration names another method or drafter."""
    for key, said in (("model", drafter), ("method", str(method))):
        if key in given and given[key] != said:
            raise BadInput(
                f"--speculative-config says {key} {_shown(given[key])}, the command line says {said!r}",
                f"leave {key} out of --speculative-config",
            )


def speculate(draft: str, method: str | None, tokens: int | None) -> Speculation:
    """Method and token count from the drafter's checkpoint, unless the user names them.

    Raises:
        BadInput: no such checkpoint, an unknown method, or a checkpoint that does not say what is needed.
    """
    if method is not None and method not in list(Method):
        raise BadInput(f"--method {method!r} is neither dflash nor dspark", "leave it out: the checkpoint says it")
    drafter = read_checkpoint(draft)
    used = Method(method) if method else drafter_method(drafter)
    if tokens is None:
        tokens = trained_draft_tokens(drafter, used)
    layers = drafter_facts(drafter, used, None).layers_in_cache
    return Speculation(used, draft, tokens, tuple(_doubts(drafter, used, tokens)), draft_layers=layers)


def _doubts(drafter: Checkpoint, method: Method, tokens: int) -> Iterator[str]:
    with suppress(BadInput):
        trained_for = drafter_method(drafter)
        if trained_for is not method:
            yield f"{drafter.name} says it is a {trained_for} drafter, and --method {method} was asked for"
    with suppress(BadInput):
        trained_tokens = trained_draft_tokens(drafter, method)
        if tokens > trained_tokens:
            yield f"{tokens} speculative tokens were asked for, and {drafter.name} was trained for {trained_tokens}"


def take_speculative_config(vllm_args: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The arguments without --speculative-config, and its content ({} without one).

    Raises:
        BadInput: it is no JSON object, is given in a form that would replace the drafter's, or has a number of tokens
            that is none.
    """
    rest: list[str] = []
    given: dict[str, Any] = {}
    words = iter(vllm_args)
    for word in words:
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option.startswith(DOTTED_OPTIONS):
            raise BadInput(
                f"{option} would replace the drafter's whole configuration",
                "give it as JSON, which is merged: --speculative-config '{\"KEY\": VALUE}'",
            )
        if option.startswith("--spec") and option not in (*CONFIG_OPTIONS, *REPLACED_OPTIONS):
            raise BadInput(f"{option} is abbreviated, and decides how drafts are made", "write the option in full")
        if option in REPLACED_OPTIONS:
            raise BadInput(f"{option} is what dspark-tool sets itself", "use --draft, --method and --tokens")
        if option in CONFIG_OPTIONS:
            given = {**given, **_json_object(value if equals else next(words, ""))}
        else:
            rest.append(word)
    _require_tokens(given.get("num_speculative_tokens"))
    return rest, given


def _require_tokens(tokens: object) -> None:
    """None leaves it open. vLLM says the same after a minute, and a recommendation calculates with it before."""
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and 0 < tokens <= LONGEST_BLOCK
    if tokens is not None and not is_count:
        raise BadInput(
            f"--speculative-config says num_speculative_tokens {_shown(tokens)}",
            f"give a number from 1 to {LONGEST_BLOCK}, or leave it out: the checkpoint says it",
        )


def _shown(value: object) -> str:
    text = masked_text(repr(value))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        shown = "its value holds a secret, and is not shown" if SECRET_KEY.search(text) else _shown(text)
        raise BadInput(f"--speculative-config is no JSON object: {shown}", 'give one like \'{"key": "value"}\'')
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
