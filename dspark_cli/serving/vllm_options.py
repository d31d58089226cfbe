"""Reading options of `vllm serve`: as its parser takes them, with the file that --config names."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

CONFIG = "--config"
LARGEST_CONFIGURATION = 1 << 20
MOST_DIGITS = 18
SHORT = {
    "-O": "--optimization-level",
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dc": "--diffusion-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-tp": "--tensor-parallel-size",
}
"""vLLM 0.32 and 0.33 engine/arg_utils.py, entrypoints/*/cli_args.py."""


def words_with_configuration(vllm_args: Sequence[str]) -> list[str]:
    """The arguments, and before them those of the file that --config names, which vLLM gives less weight.

    A file that cannot be read is vLLM's to complain of.
    """
    return [*_words_of(_configuration_of(vllm_args)), *vllm_args]


def words_that_vllm_reads(vllm_args: Sequence[str]) -> list[str]:
    """As `words_with_configuration`, without what the file sets to false."""
    configuration = _configuration_of(vllm_args)
    read = {key: value for key, value in configuration.items() if value is not False}
    return [*_words_of(read), *vllm_args]


def switched_off_in_configuration(vllm_args: Sequence[str]) -> list[str]:
    """The options that the file sets to false, in its own words: vLLM 0.26 to 0.33 drops them. From 0.30 on it looks
    for their --no- form, but among the options of `vllm` itself and not of `vllm serve`."""
    return [key for key, value in _configuration_of(vllm_args).items() if value is False]


def with_long_names(words: Iterable[str]) -> list[str]:
    return [_with_long_name(word) for word in words]


def _with_long_name(word: str) -> str:
    """Also of `-O3`, and of `-cc.mode`, whose key behind the dot stays."""
    if word.startswith("-O") and word != "-O":
        return f"{SHORT['-O']}={word[2:].removeprefix('=')}"
    name, equals, value = word.partition("=")
    name, dot, keys = name.partition(".")
    return SHORT.get(name, name) + dot + keys + equals + value


def begins_option(word: str) -> bool:
    """Whether `word` is surely an option: what only looks like one may be a value, such as a password."""
    return word.startswith(("--", "-O")) or word.partition("=")[0].partition(".")[0] in SHORT


def is_option(word: str) -> bool:
    """Whether it begins an option, and is no negative number."""
    return word.startswith("-") and not word[1:].replace(".", "").isdecimal()


def option_values(words: Sequence[str], option: str, least: str | None = None) -> list[str]:
    """The values of the last `option` among `words`, in either spelling; [] where it is not there, or has none.

    least: its shortest abbreviation that vLLM takes; without it none is looked for.
    """
    values: list[str] = []
    follows = False
    for word in words:
        if begins_option(word):
            name, equals, value = word.partition("=")
            follows = names(name, option, least)
            if follows:
                values = [value] if equals else []
        elif follows:
            values.append(word)
    return values


def names(word: str, option: str, least: str | None = None) -> bool:
    """Whether `word`, without its value, is `option` or an abbreviation of it, not shorter than `least`."""
    said = word.replace("_", "-").lower()
    return said.startswith(least or option) and option.startswith(said)


def has_switch(words: Sequence[str], option: str) -> bool | None:
    """Whether the last of `option` and its `--no-` form says yes; None where neither is there."""
    forms = {option: True, f"--no-{option.removeprefix('--')}": False}
    said = None
    for word in words:
        name, equals, value = word.partition("=")
        found = forms.get(name.replace("_", "-"))
        if found is not None:
            said = found if not equals else found is (value.lower() in ("true", "1", "yes"))
    return said


def whole_number(text: str) -> int | None:
    """A number as vLLM reads sizes: 4096, 4k (thousands) or 4K (1,024s); None where it is left to vLLM, or is none."""
    if len(text) > MOST_DIGITS:
        return None
    units = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:], 1)
    digits = text if unit == 1 else text[:-1]
    try:
        value = int(float(digits) * unit) if "." in digits else int(digits) * unit
    except (ValueError, OverflowError):
        return None
    return value if value > 0 else None


def _configuration_of(vllm_args: Sequence[str]) -> dict[str, Any]:
    files = option_values(vllm_args, CONFIG)
    return _mapping_in(Path(files[-1])) if files else {}


def _words_of(configuration: dict[str, Any]) -> list[str]:
    try:
        return list(_words_in(configuration))
    except (TypeError, ValueError):  # dates for keys, and numbers that are too long: vLLM's to complain of
        return []


def _words_in(mapping: dict[str, Any]) -> Iterator[str]:
    for key, value in mapping.items():
        if isinstance(value, bool):
            yield f"--{key}" if value else f"--no-{key}"
        elif isinstance(value, list):
            yield from (f"--{key}", *(str(held) for held in value))
        elif isinstance(value, dict):
            yield from (f"--{key}", json.dumps(value, default=str))
        elif value is not None:
            yield from (f"--{key}", str(value))


def _mapping_in(file: Path) -> dict[str, Any]:
    import yaml  # vLLM depends on it, and reads the file with it

    try:
        if not file.is_file():
            return {}
        with file.open("rb") as opened:
            text = opened.read(LARGEST_CONFIGURATION + 1)
        read = yaml.safe_load(text.decode(errors="replace")) if len(text) <= LARGEST_CONFIGURATION else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return {str(key): value for key, value in read.items()} if isinstance(read, dict) and _can_be_told(read) else {}


def _can_be_told(read: object) -> bool:
    """Whether it is not too large once it is written out: a small file may repeat its parts by aliases without end."""
    rest, size = [read], 0
    while rest:
        held = rest.pop()
        size += 1 + (len(held) if isinstance(held, str | bytes | list | dict) else 0)
        if size > LARGEST_CONFIGURATION:
            return False
        if isinstance(held, list | dict):
            rest += [*held, *held.values()] if isinstance(held, dict) else held
    return True
