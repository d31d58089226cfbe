"""Words of a command for a shell: what is pasted is what was meant, whatever a name holds."""

import shlex
from collections.abc import Iterable


def shell_line(words: Iterable[str]) -> str:
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """`word` for bash and zsh. Control characters, and others that do not show, are written as escapes: nothing is left
    for a terminal to act on, and nothing has to be replaced."""
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escaped, word))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))
