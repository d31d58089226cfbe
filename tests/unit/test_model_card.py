"""The acceptance lengths of model cards: the tables that publishers write, and what is none of theirs."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay, ToolError
from dspark_cli.profiling.expectation import expected_band, expected_of_card
from dspark_cli.sources.model_card import LONGEST_LENGTH, stated_lengths

BY_TOKENS = """
# A drafter

### Acceptance lengths

| Use case | k=1 | k=2 | **k=3** | `k=4` | K = 5 | k=6 | k=7 |
| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| Coding | 1.74 | 2.21 | 2.51 | 2.69 | 2.80 | 2.88 | **2.93** |
| Math | 1.81 | 2.41 | 2.83 | 3.13 | 3.34 | 3.49 | 3.60 |
| Chat | 1.52 | 1.77 | 1.89 | 1.95 | 1.98 | - | n/a |
"""


def card(text: str, folder: Path) -> Path:
    file = folder / "README.md"
    file.write_text(text)
    return file


def table(heading: str, *rows: str, title: str = "Results") -> str:
    ruling = "|" + "---|" * heading.strip("|").count("|") + "---|"
    return "\n".join([f"## {title}", "", heading, ruling, *rows, ""])


@pytest.mark.parametrize(
    ("tokens", "lengths"),
    [
        (1, [1.74, 1.81, 1.52]),
        (3, [2.51, 2.83, 1.89]),
        (4, [2.69, 3.13, 1.95]),
        (5, [2.80, 3.34, 1.98]),
        (7, [2.93, 3.60]),
        (None, [2.93, 3.60]),
    ],
)
def test_the_column_of_so_many_tokens_is_read(tokens: int | None, lengths: list[float], tmp_path: Path) -> None:
    assert stated_lengths(card(BY_TOKENS, tmp_path), tokens) == lengths


def test_tokens_without_a_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(CannotSay, match="no table with an acceptance length for 8 tokens") as refused:
        stated_lengths(card(BY_TOKENS, tmp_path), 8)

    assert "--expect" in refused.value.next_step


def test_the_same_columns_under_another_heading_are_no_lengths(tmp_path: Path) -> None:
    with pytest.raises(CannotSay):
        stated_lengths(card(BY_TOKENS.replace("Acceptance lengths", "Speedup"), tmp_path), 3)


@pytest.mark.parametrize(
    "heading",
    ["Acceptance Length", "**Mean acceptance length**", "Accept Len", "AL", "Accepted length", "mean accepted"],
)
def test_a_column_of_lengths_is_read(heading: str, tmp_path: Path) -> None:
    text = table(f"| Set | Speedup | {heading} |", "| GSM8K | 2.1x | 4.41 |", "| MT-Bench | 1.9x | **3.2** |")

    assert stated_lengths(card(text, tmp_path), 7) == [4.41, 3.2]


def test_a_row_of_lengths_is_read(tmp_path: Path) -> None:
    text = table("| | GSM8K | MT-Bench |", "| Speedup | 2.1 | 1.9 |", "| Acceptance length | *4.41* | 3.20x |")

    assert stated_lengths(card(text, tmp_path), None) == [4.41, 3.2]


@pytest.mark.parametrize("cell", ["2.8-3.6", "**2.8 - 3.6**", "2.8\u20133.6", "2.8 \u2014 3.6"])
def test_a_range_is_its_ends(cell: str, tmp_path: Path) -> None:
    text = table("| Set | Acceptance length |", f"| GSM8K | {cell} |")

    assert stated_lengths(card(text, tmp_path), None) == [2.8, 3.6]


@pytest.mark.parametrize("heading", ["Acceptance rate", "Mean acceptance rate", "Total", "Alpha", "ALL"])
def test_rates_and_other_figures_are_no_lengths(heading: str, tmp_path: Path) -> None:
    with pytest.raises(CannotSay):
        stated_lengths(card(table(f"| Set | {heading} |", "| GSM8K | 45.2 |"), tmp_path), None)


@pytest.mark.parametrize(
    "cell", ["", "-", "0.93", "66.0", "1e3", "nan", "inf", "3,2", "45%", "\u0663.\u0662", "9" * 3000]
)
def test_a_cell_that_is_no_length_is_passed_over(cell: str, tmp_path: Path) -> None:
    text = table("| Set | Acceptance length |", f"| GSM8K | {cell} |", "| Chat | 2.5 |")

    assert stated_lengths(card(text, tmp_path), None) == [2.5]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Acceptance length: 3.2",
        "| Acceptance length |",
        "| Acceptance length |\n| --- |",
        "| Acceptance length |\n| 3.1 |\n| 3.2 |",
        "|\n|\n|\n",
        "| Set | Acceptance length |\n| --- | --- |\n| Chat |",
        "| Set | Acceptance length |\n| --- | --- |\n\n| Chat | 3.2 |",
        "|" * 5000 + "\n" + "|" * 5000,
    ],
)
def test_a_card_without_a_whole_table_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(CannotSay, match="no table with an acceptance length"):
        stated_lengths(card(text, tmp_path), None)


def test_a_table_that_breaks_off_keeps_its_rows(tmp_path: Path) -> None:
    text = table("| Set | Acceptance length |", "| GSM8K | 4.4 |", "| Chat", "words")

    assert stated_lengths(card(text, tmp_path), None) == [4.4]


def test_the_drafters_folder_is_enough(tmp_path: Path) -> None:
    card(BY_TOKENS, tmp_path)

    assert stated_lengths(tmp_path, 1) == [1.74, 1.81, 1.52]


def test_a_card_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / ("x" * 300)):
        with pytest.raises(BadInput, match="cannot be read"):
            stated_lengths(path, None)


def test_the_band_of_a_card_is_from_its_least_to_its_greatest(tmp_path: Path) -> None:
    band = expected_of_card(card(BY_TOKENS, tmp_path), 3)

    assert (band.low, band.high, band.source) == (1.89, 2.83, "the model card")


@pytest.mark.parametrize(
    ("text", "low", "high"), [("2.8-3.6", 2.8, 3.6), (" 3 ", 3, 3), ("1-65", 1, 65), ("2 - 3", 2, 3)]
)
def test_a_band_is_two_lengths_or_one(text: str, low: float, high: float) -> None:
    band = expected_band(text)

    assert (band.low, band.high) == (low, high)


@pytest.mark.parametrize("text", ["", "x", "0.5", "3-2", "-3", "2-", "1e3", "nan", "2.8-3.6-4", "\u0663", "2" * 5000])
def test_what_is_no_band_is_named(text: str) -> None:
    with pytest.raises(BadInput, match="--expect"):
        expected_band(text)


@given(st.text(max_size=60))
def test_any_band_is_one_or_refused(text: str) -> None:
    try:
        band = expected_band(text)
    except BadInput:
        return
    assert 1 <= band.low <= band.high < 100


cells = st.sampled_from(
    ["k=3", "K = 7", "AL", "Acceptance length", "---", ":-:", "3.1", "**2.9**", "2-3", "", "x", "-"]
)
lines = st.lists(cells, max_size=5).map(lambda row: "| " + " | ".join(row) + " |") | st.sampled_from(
    ["", "### Acceptance lengths", "words"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(lines, max_size=14).map("\n".join).map(str.encode) | st.binary(max_size=300),
    st.none() | st.integers(0, 10),
)
def test_any_card_states_lengths_or_is_refused(tmp_path: Path, content: bytes, tokens: int | None) -> None:
    file = tmp_path / "README.md"
    file.write_bytes(content)

    try:
        lengths = stated_lengths(file, tokens)
    except ToolError:
        return
    assert lengths
    assert all(1 <= length <= LONGEST_LENGTH for length in lengths)
