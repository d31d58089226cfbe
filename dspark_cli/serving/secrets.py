"""What must never be shown: API keys, tokens and passwords in a server's arguments, its configuration file and its
environment."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dspark_cli.serving.vllm_options import begins_option, is_option, names, option_values, words_with_configuration

API_KEY = "--api-key"
API_KEY_VARIABLE = "VLLM_API_KEY"
HF_TOKEN = "--hf-token"
HF_TOKEN_VARIABLE = "HF_TOKEN"
LEAST = {API_KEY: "--api-k", HF_TOKEN: "--hf-t"}
"""Their shortest abbreviations that no other option of vLLM shares."""
SECRET_OPTIONS = (API_KEY, HF_TOKEN, "--ssl-keyfile-password")
SHORTEST_ABBREVIATION = len("--ap")
SECRET_KEY = re.compile(
    r"(api|access|secret|private|account)[_-]?key|secret|passw|passphrase|credential|authorization"
    r"|(access|auth|bearer|refresh|session|security|hf)[_-]?token(?![\w-])|(?<![\w-])(token|auth)(?![\w-])",
    re.I,
)
"""Of JSON and of dotted options. Names such as bos_token and max_tokens are no secrets."""
SECRET_VARIABLE = re.compile(r"_(API_)?KEY$|_TOKEN$|SECRET|PASSW|CREDENTIAL", re.I)
URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s?#\"']+)(?=@)")
URL_TOKEN = re.compile(r"(?<=http://|ttps://)([^/\s:@?#\"']+)(?=@)")
"""Alone before the @, as hubs and forges take it."""
QUERY_SECRET = re.compile(
    r"(?<=[?&])([\w.-]*(?:key|token|sig|signature|secret|credential|passw\w*)=)([^&\s#\"']+)", re.I
)
HEADER_SECRET = re.compile(r"\b((?:Bearer|Basic)\s+)([\w.~+/=-]{8,})")
SHORTEST_SECRET = 4
"""Masking a shorter value would take ordinary words out of a log, and tell no more than it hides."""
SHORTEST_IN_VARIABLE = 8
"""Variables of such names often hold something else: a user's own, or another program's."""
MASK = "***"


def without_secrets(argv: Sequence[str]) -> list[str]:
    """`argv` with API keys and tokens masked: the values of such options, abbreviated as vLLM's parser allows or with
    such a key behind a dot, of such keys in JSON values, and what stands for a password in URLs and headers."""
    shown: list[str] = []
    follows_secret = False
    for word in argv:
        option, equals, value = word.partition("=")
        if begins_option(word):
            follows_secret = is_secret_option(option)
            masked = MASK if follows_secret else _masked_value(value)
            shown.append(f"{option}={masked}" if equals else word)
        else:
            shown.append(MASK if follows_secret else _masked_value(word))
    return shown


def without_masked(words: Sequence[str]) -> list[str]:
    """Without the options that had a value masked: pasted, or in a file, the mask would become the value."""
    groups: list[list[str]] = []
    for word in words:
        if is_option(word) or not groups:
            groups.append([])
        groups[-1].append(word)
    return [word for group in groups if not any(MASK in word for word in group) for word in group]


def masked_text(text: str) -> str:
    """`text` with what stands for a password in URLs and headers masked."""
    for pattern in (URL_PASSWORD, QUERY_SECRET, HEADER_SECRET):
        separator = ":" if pattern is URL_PASSWORD else ""
        text = pattern.sub(rf"\1{separator}{MASK}", text)
    return URL_TOKEN.sub(MASK, text)


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy with the values of such variables masked."""
    return {name: MASK if SECRET_VARIABLE.search(name) else value for name, value in environment.items()}


def masked_keys(value: Any) -> Any:
    """A copy of a JSON value in which the values of such keys are masked, and passwords in its texts."""
    if isinstance(value, dict):
        return {key: MASK if SECRET_KEY.search(str(key)) else masked_keys(held) for key, held in value.items()}
    if isinstance(value, str):
        return masked_text(value)
    return [masked_keys(held) for held in value] if isinstance(value, list) else value


def is_secret_option(option: str) -> bool:
    """Also of a key behind a dot, which vLLM puts into the option's JSON."""
    name, *keys = option.lower().rstrip("+").split(".")
    name = name.replace("_", "-")
    named = len(name) >= SHORTEST_ABBREVIATION and any(secret.startswith(name) for secret in SECRET_OPTIONS)
    return named or any(SECRET_KEY.search(key) for key in keys)


def secrets_of(vllm_args: Sequence[str], environment: Mapping[str, str]) -> frozenset[str]:
    """Every secret that a server with these arguments, and this environment, could print."""
    words = words_with_configuration(vllm_args)
    found = {
        *_in_options(words),
        *_in_variables(environment),
        *(secret for word in words for secret in _in_text(word)),
    }
    return frozenset(value for value in found if len(value) >= SHORTEST_SECRET and not os.path.lexists(value))


def api_keys(vllm_args: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The keys that the server takes, as vLLM finds them: the option's, else the variable's."""
    given = [key for key in option_values(words_with_configuration(vllm_args), API_KEY, LEAST[API_KEY]) if key]
    variable = environment.get(API_KEY_VARIABLE)
    return given or ([variable] if variable else [])


def out_of_sight(vllm_args: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """The arguments without a key that an environment variable can hand over as well, those variables, and notes.

    Everybody on a host can read a process's arguments, only its owner the environment. VLLM_API_KEY holds one key, so
    several stay where they are.
    """
    rest, added, notes = list(vllm_args), dict[str, str](), list[str]()
    for option, variable in ((API_KEY, API_KEY_VARIABLE), (HF_TOKEN, HF_TOKEN_VARIABLE)):
        values = option_values(rest, option, LEAST[option])
        if len(values) == 1 and values[0]:
            rest = _without_option(rest, option)
            added[variable] = values[0]
        elif len(values) > 1:
            notes.append(
                f"several values of {option} stay on the server's command line, which every user of this host can read;"
                " a --config FILE hides them"
            )
    return rest, added, notes


def _without_option(words: Iterable[str], option: str) -> list[str]:
    rest: list[str] = []
    dropping = False
    for word in words:
        if begins_option(word):
            dropping = names(word.partition("=")[0], option, LEAST[option])
        if not dropping:
            rest.append(word)
    return rest


def _in_variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        ours = name in (API_KEY_VARIABLE, HF_TOKEN_VARIABLE)
        if ours or (SECRET_VARIABLE.search(name) and len(value) >= SHORTEST_IN_VARIABLE):
            yield value


def _in_text(word: str) -> Iterator[str]:
    for pattern in (URL_PASSWORD, QUERY_SECRET, HEADER_SECRET):
        yield from (secret for _, secret in pattern.findall(word))
    yield from (token for token in URL_TOKEN.findall(word) if len(token) >= SHORTEST_IN_VARIABLE)


def _in_options(words: Sequence[str]) -> Iterator[str]:
    follows_secret = False
    for word in words:
        option, equals, value = word.partition("=")
        if begins_option(word):
            follows_secret = is_secret_option(option)
            if not equals:
                continue
            word = value
        if follows_secret:
            yield word
        else:
            yield from _in_json(word)


def _in_json(text: str) -> Iterator[str]:
    if text.lstrip().startswith(("{", "[")):
        try:
            yield from _of_keys(json.loads(text))
        except (ValueError, RecursionError):
            return


def _of_keys(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for held in value:
            yield from _of_keys(held)
    if isinstance(value, dict):
        for key, held in value.items():
            if SECRET_KEY.search(str(key)) and isinstance(held, str):
                yield held
            else:
                yield from _of_keys(held)


def _masked_value(text: str) -> str:
    text = masked_text(text)
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return MASK if SECRET_KEY.search(text) else text
    masked = masked_keys(value)
    return text if masked == value else json.dumps(masked)
