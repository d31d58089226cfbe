"""Texts to send: the tool's own, or the user's."""

import json
import random
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from dspark_cli.errors import BadInput, NotFit

LARGEST_FILE = 256 * 1024 * 1024
SHORTEST_TEXT = 200
"""In characters. A shorter prompt leaves nothing to restore."""
BLANK_LINES = re.compile(r"\r?\n[ \t]*\r?\n\s*")


def built_in_texts(count: int, characters: int, seed: int) -> list[str]:
    """`count` texts of `characters` each from the standard library of the Python that runs this: text that every
    installation has, and of a kind that models draft well.

    Raises:
        NotFit: this Python has no sources.
    """
    order = random.Random(seed)
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    order.shuffle(modules)
    sources = [module.read_text("utf-8", errors="replace") for module in modules]
    texts: list[str] = []
    for start in range(0, 1_000_000, characters):
        texts += [source[start : start + characters] for source in sources if len(source) >= start + characters]
        if len(texts) >= count:
            return texts[:count]
    raise NotFit(
        f"this Python's standard library does not hold {count} prompts of {characters:,} characters",
        "give prompts: --prompts FILE, or ask for fewer or shorter ones",
    )


def texts_of_file(path: Path) -> list[str]:
    """The prompts of a file: ShareGPT JSON (the first human turn of each conversation), a JSON list of texts, JSON
    lines with a `prompt` or `text`, or plain text with blank lines between prompts.

    Raises:
        BadInput: it cannot be read, or holds no text long enough.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})", "give a file of prompts") from None
    if len(content) > LARGEST_FILE:
        raise BadInput(f"{path} is larger than {LARGEST_FILE >> 20} MiB", "give a part of it")
    found = _found_in(content.decode("utf-8-sig", errors="replace"))
    texts = [_sendable(text) for text in found if len(text) >= SHORTEST_TEXT]
    if not texts:
        raise BadInput(
            f"{path} holds no prompt of {SHORTEST_TEXT} characters or more",
            "give ShareGPT JSON, a JSON list of texts, JSON lines with `prompt`, or texts with blank lines between",
        )
    return texts


def shaped(texts: Sequence[str], count: int, characters: int) -> list[str]:
    """`count` prompts of at most `characters`, or fewer where there are no more that differ: each begins with another
    text, and texts are joined where they are short."""
    prompts = (_joined(texts, first, characters) for first in range(min(count, len(texts))))
    return list(dict.fromkeys(prompts))


def _joined(texts: Sequence[str], first: int, characters: int) -> str:
    parts: list[str] = []
    length = 0
    for at in range(len(texts)):
        if length >= characters:
            break
        parts.append(texts[(first + at) % len(texts)])
        length += len(parts[-1])
    return "\n\n".join(parts)[:characters]


def _found_in(content: str) -> list[str]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return _lines(content) or [part.strip() for part in BLANK_LINES.split(content)]
    entries = document if isinstance(document, list) else [document]
    return [text for entry in entries if (text := _text(entry))]


def _lines(content: str) -> list[str]:
    """The prompts of JSON lines; none where it is no such file."""
    lines = content.split("\n")  # splitlines() ends them at U+2028 too, which JSON may hold as it is
    if not any(line.startswith("{") for line in lines[:3]):
        return []
    texts = []
    for line in lines:
        try:
            texts.append(_text(json.loads(line)))
        except (ValueError, RecursionError):
            continue
    return [text for text in texts if text]


def _text(entry: object) -> str | None:
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict):
        return None
    turns = entry.get("conversations") or entry.get("messages")
    if isinstance(turns, list):
        said = (turn for turn in turns if isinstance(turn, dict))
        human = (turn for turn in said if turn.get("from") in ("human", "user") or turn.get("role") == "user")
        first = next(human, {})
        return _string(first.get("value")) or _string(first.get("content"))
    return _string(entry.get("prompt")) or _string(entry.get("text"))


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _sendable(text: str) -> str:
    """JSON may hold half of a surrogate pair, which no request can."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
