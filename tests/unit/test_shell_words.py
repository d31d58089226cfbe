"""Commands that are shown can be pasted, and drive no terminal."""

import os
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_cli.serving.shell_words import shell_line

WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), min_size=1, max_size=4)


def read_by_bash(line: str) -> list[str]:
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    return [os.fsdecode(word) for word in read.split(b"\0")[:-1]]


@settings(max_examples=60, deadline=None)
@given(WORDS)
def test_a_shell_reads_the_words_that_were_meant(words: list[str]) -> None:
    assert read_by_bash(shell_line(words)) == words


@pytest.mark.parametrize("word", ["a\nb", "\x1b[31m", "\u202e", "it's\t\\x", "\udcff", "$(x)\r", "\x01f"])
def test_what_does_not_show_is_written_as_an_escape(word: str) -> None:
    line = shell_line([word])

    assert line.isprintable()
    assert read_by_bash(line) == [word]


@given(WORDS)
def test_ordinary_words_are_quoted_as_everywhere(words: list[str]) -> None:
    plain = [word for word in words if word.isprintable()]

    assert shell_line(plain) == shlex.join(plain)


def test_a_text_that_is_no_unicode_is_told_all_the_same() -> None:
    assert shell_line(["\ud800"]).isprintable()
