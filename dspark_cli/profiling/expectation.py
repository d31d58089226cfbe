"""What acceptance length to expect: the user's word, or the drafter's model card."""

import re
from pathlib import Path

from dspark_cli.errors import BadInput
from dspark_cli.findings.acceptance.evidence import ExpectedAcceptance
from dspark_cli.sources.model_card import stated_lengths

BAND = re.compile(r"\s*([0-9]{1,2}(?:\.[0-9]+)?)\s*(?:-\s*([0-9]{1,2}(?:\.[0-9]+)?)\s*)?")


def expected_band(text: str) -> ExpectedAcceptance:
    """The band of `2.8-3.6`, or of one length.

    Raises:
        BadInput: no such band, or below 1, the length of a step that accepts nothing.
    """
    found = BAND.fullmatch(text)
    low = float(found[1]) if found else 0.0
    high = float(found[2]) if found and found[2] else low
    if not 1 <= low <= high:
        raise BadInput(
            f"--expect {text[:40]!r} is no band of acceptance lengths", "give one like 2.8-3.6; 1 is the least"
        )
    return ExpectedAcceptance(low, high, "what is expected")


def expected_of_card(card: Path, tokens: int | None) -> ExpectedAcceptance:
    """The band of all acceptance lengths that the card states for so many drafted tokens.

    Raises:
        BadInput, CannotSay: see `stated_lengths`.
    """
    lengths = stated_lengths(card, tokens)
    return ExpectedAcceptance(min(lengths), max(lengths), "the model card")
