"""A configuration file for `vllm serve --config`, with the reasons as comments."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from dspark_cli.errors import BadInput
from dspark_cli.recommending.recommend import pasted_config
from dspark_cli.recommending.recommendation import Choice, Recommendation
from dspark_cli.serving.secrets import MASK, without_secrets
from dspark_cli.serving.vllm_options import CONFIG, is_option, option_values, with_long_names, words_that_vllm_reads

WIDTH = 100
ADDED_UP = ("middleware",)
"""Options of vLLM whose values add up when they are given again."""
NOT_IN_A_FILE = ("config", "model")
"""The settings of the user's own file are written out, for vLLM reads one file; the target is told first."""


def config_file(recommendation: Recommendation) -> str:
    """YAML text. `recommendation` has its secrets masked; what was masked is left out, and a comment says so.

    Raises:
        BadInput: an argument has no place in such a file, or the user's own one cannot be read.
    """
    import yaml

    words = words_that_vllm_reads(recommendation.vllm_args)
    _require_read(recommendation.vllm_args, words)
    told = _settings(without_secrets(words))
    config = pasted_config(recommendation)
    masked = [option for option, value in told.items() if MASK in str(value)]
    masked += [f"speculative-config {key}" for key in recommendation.speculative_config if key not in config]
    settings = {option: value for option, value in told.items() if option not in masked}
    settings = {"model": recommendation.target, **settings, "speculative-config": config}
    comment = "".join(f"# {line}\n" for line in _comment(recommendation, masked))
    return comment + str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, default_flow_style=False))


def _require_read(given: Sequence[str], words: Sequence[str]) -> None:
    files = option_values(given, CONFIG)
    if files and len(words) == len(given):
        raise BadInput(f"--config {files[-1]} has no settings that can be read", "check that file, or leave it out")


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """By option, without its dashes: true (a switch), one value, or several. The last one given counts."""
    told: dict[str, Any] = {}
    words, at = with_long_names(words), 0
    while at < len(words):
        if not words[at].startswith("--"):
            raise BadInput(
                f"{words[at]!r} has no place in a configuration file", "give options by their long names: --option"
            )
        name, equals, value = words[at].partition("=")
        at += 1
        values = [value] if equals else []
        while not equals and at < len(words) and not is_option(words[at]):
            values.append(words[at])
            at += 1
        option, dot, keys = name.removeprefix("--").partition(".")
        option = option.replace("_", "-") + dot + keys
        if option in told and option in ADDED_UP:
            raise BadInput(
                f"--{option} is given several times, and a configuration file has it once",
                f"leave --{option} out, and give it on the command line beside the file",
            )
        told[option] = True if not values else values[0] if len(values) == 1 else values
    return {option: value for option, value in told.items() if option not in NOT_IN_A_FILE}


def _comment(recommendation: Recommendation, masked: Sequence[str]) -> Iterator[str]:
    yield from _wrapped(
        f"for {recommendation.vllm}, model runner {recommendation.model_runner}, {recommendation.device}"
    )
    for choice in recommendation.choices:
        if MASK not in str(choice.value):
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
