"""The options of `vllm serve` that a user gives, by name."""

from collections.abc import Iterator, Sequence

SHORT = {
    "-tp": "--tensor-parallel-size",
    "-dp": "--data-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-n": "--nnodes",
    "-r": "--node-rank",
}
SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""vLLM's own: 1k is 1,000 and 1K is 1,024."""


class GivenOptions:
    """What stands in the arguments, long names with dashes; a switch alone is "true", `--no-x` makes x "false".

    Abbreviations are not resolved: only vLLM's parser knows them.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._values = dict(_options(words))

    def __contains__(self, option: str) -> bool:
        return option in self._values

    def text(self, option: str) -> str | None:
        return self._values.get(option)

    def number(self, option: str) -> int | None:
        """None where it is not given, or is no number (vLLM will say so)."""
        text = self._values.get(option, "").strip()
        factor = SUFFIXES.get(text[-1:], 1)
        digits = text if factor == 1 else text[:-1]
        return int(digits) * factor if digits.isdecimal() else None

    def is_on(self, option: str) -> bool | None:
        """Of a switch; None where neither it nor its --no- form is given."""
        text = self._values.get(option)
        return None if text is None else text.lower() not in ("false", "0", "no")

    @property
    def has_config_file(self) -> bool:
        return "--config" in self._values


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(words):
        if not is_option(word):
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else SHORT.get(name, name)
        following = words[at + 1] if at + 1 < len(words) and not is_option(words[at + 1]) else "true"
        if name.startswith("--no-") and not equals:
            yield name.replace("--no-", "--", 1), "false"
        else:
            yield name, value if equals else following


def is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:].replace(".", "").isdecimal()
