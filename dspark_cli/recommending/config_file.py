"""A configuration file for `vllm serve --config`, with the reasons as comments."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from dspark_cli.serving.vllm_options import is_option, with_long_names
from dspark_cli.recommending.recommendation import Choice, Recommendation
from dspark_cli.serving.secrets import MASK

WIDTH = 100


def config_file(recommendation: Recommendation) -> str:
    """YAML text. `recommendation` has its secrets masked; what was masked is left out, and a comment says so."""
    import yaml

    told = dict(_settings(recommendation.vllm_args))
    masked = [option for option, value in told.items() if value == MASK]
    settings: dict[str, Any] = {"model": recommendation.target}
    settings |= {option: value for option, value in told.items() if option not in masked}
    settings["speculative-config"] = recommendation.speculative_config
    comment = "".join(f"# {line}\n" for line in _comment(recommendation, masked))
    return comment + str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, default_flow_style=False))


def _settings(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Option names without their dashes, and what follows them: nothing (a switch), one value, or several."""
    words, at = with_long_names(words), 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        at += 1
        values = [value] if equals else []
        while not equals and at < len(words) and not is_option(words[at]):
            values.append(words[at])
            at += 1
        option = name.lstrip("-").replace("_", "-")
        yield option, True if not values else values[0] if len(values) == 1 else values


def _comment(recommendation: Recommendation, masked: Sequence[str]) -> Iterator[str]:
    yield from _wrapped(
        f"for {recommendation.vllm}, model runner {recommendation.model_runner}, {recommendation.device}"
    )
    for choice in recommendation.choices:
        yield from _wrapped(_said(choice))
    for option in masked:
        yield from _wrapped(f"{option} is secret and left out: give it in the environment or on the command line")
    yield from _wrapped("dspark-tool serve adds what keeps the draft context honest; plain vllm serve does not")


def _said(choice: Choice) -> str:
    what = f"{choice.setting} = {choice.value}" if choice.value is not None else f"{choice.setting} is left out"
    return f"{what}: {choice.reason} ({choice.source})"


def _wrapped(text: str) -> list[str]:
    """Names are hostile text: one that holds a line break must not end the comment."""
    return textwrap.wrap(" ".join("".join(c if c.isprintable() else " " for c in text).split()), WIDTH)
