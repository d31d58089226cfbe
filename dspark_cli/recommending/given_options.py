"""The options of `vllm serve` that a user gives, on the command line or in the file that --config names."""

from collections.abc import Sequence

from dspark_cli.serving.vllm_options import (
    has_switch,
    option_values,
    switched_off_in_configuration,
    whole_number,
    with_long_names,
    words_that_vllm_reads,
)


class GivenOptions:
    """Long names, with dashes. Abbreviations are not resolved: only vLLM's parser knows them."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = with_long_names(words_that_vllm_reads(words))
        self.switched_off_in_file = switched_off_in_configuration(words)

    def text(self, option: str) -> str | None:
        return next(iter(option_values(self._words, option)), None)

    def number(self, option: str) -> int | None:
        """None where it is not given, or is no number above zero (vLLM will say so)."""
        text = self.text(option)
        return None if text is None else whole_number(text)

    def is_on(self, option: str) -> bool | None:
        """Of a switch; None where neither it nor its --no- form is given."""
        return has_switch(self._words, option)

    def value(self, option: str) -> int | str | bool | None:
        number, text = self.number(option), self.text(option)
        return number if number is not None else text if text is not None else self.is_on(option)
