"""Reading options of `vllm serve`: as its parser takes them, with the file that --config names."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CONFIG = "--config"
LARGEST_CONFIGURATION = 1 << 20


def words_with_configuration(vllm_args: Sequence[str]) -> list[str]:
    """The arguments, and before them those of the file that --config names, which vLLM gives less weight.

    A file that cannot be read is vLLM's to complain of.
    """
    files = option_values(vllm_args, CONFIG)
    return [*(_words_of(Path(files[-1])) if files else ()), *vllm_args]


def option_values(words: Sequence[str], option: str, least: str | None = None) -> list[str]:
    """The values of the last `option` among `words`, in either spelling; [] where it is not there, or has none.

    least: its shortest abbreviation that vLLM takes; without it none is looked for.
    """
    values: list[str] = []
    follows = False
    for word in words:
        if word.startswith("--"):
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
    units = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:], 1)
    digits = text if unit == 1 else text[:-1]
    try:
        value = int(float(digits) * unit) if "." in digits else int(digits) * unit
    except (ValueError, OverflowError):
        return None
    return value if value > 0 else None


def _words_of(file: Path) -> Iterator[str]:
    for key, value in _mapping_in(file).items():
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
        if not file.is_file() or file.stat().st_size > LARGEST_CONFIGURATION:
            return {}
        read = yaml.safe_load(file.read_text(errors="replace"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return {str(key): value for key, value in read.items()} if isinstance(read, dict) else {}
