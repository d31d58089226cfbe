"""Prompts: the tool's own, and those of the user's file, whatever is in it."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, CannotSay, NotFit
from dspark_cli.facts.probe import ProbedRequest
from dspark_cli.probing import prompt_texts
from dspark_cli.probing.experiment import ProbePlan, characters_a_token
from dspark_cli.probing.prompt_texts import SHORTEST_TEXT, built_in_texts, shaped, texts_of_file
from dspark_cli.probing.trailing_block import shared_prefix
from dspark_cli.sources.completions import Answers

LONG, OTHER = ("why " * 60).strip(), ("how " * 60).strip()
SHORT = "too short"


def texts_in(content: str | bytes, folder: Path) -> list[str]:
    file = folder / "prompts"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return texts_of_file(file)


def conversation(*turns: tuple[str, str]) -> dict[str, object]:
    return {"id": "x", "conversations": [{"from": who, "value": said} for who, said in turns]}


def test_of_sharegpt_the_first_human_turn_of_each_conversation_is_taken(tmp_path: Path) -> None:
    document = [
        conversation(("system", OTHER), ("human", LONG), ("gpt", OTHER), ("human", OTHER)),
        conversation(("gpt", LONG)),
        conversation(("user", OTHER)),
        conversation(("human", SHORT)),
        conversation(),
    ]

    assert texts_in(json.dumps(document), tmp_path) == [LONG, OTHER]


@pytest.mark.parametrize(
    "entry",
    [
        LONG,
        {"prompt": LONG},
        {"text": LONG},
        {"messages": [{"role": "user", "content": LONG}]},
        {"prompt": 1, "text": LONG},
    ],
)
def test_a_json_list_may_hold_texts_in_several_forms(entry: object, tmp_path: Path) -> None:
    assert texts_in(json.dumps([entry, SHORT, None, 7, [], {}]), tmp_path) == [LONG]


def test_json_lines_are_read_and_broken_ones_passed_over(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": LONG}), "{oops", "", json.dumps({"text": OTHER}), json.dumps(SHORT)]

    assert texts_in("\n".join(lines), tmp_path) == [LONG, OTHER]
    assert texts_in("\r\n".join(lines), tmp_path) == [LONG, OTHER]


def test_a_line_separator_in_a_json_line_ends_no_line(tmp_path: Path) -> None:
    odd = LONG + "\u2028\x85" + OTHER
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in (odd, OTHER)]

    assert texts_in("\n".join(lines), tmp_path) == [odd, OTHER]


@pytest.mark.parametrize("between", ["\n\n", "\n\n\n\n", "\r\n\r\n", "\n  \n", "\n\t\n"])
def test_in_plain_text_blank_lines_separate_prompts(between: str, tmp_path: Path) -> None:
    assert texts_in(between.join([LONG, SHORT, f"{OTHER}\n{OTHER}"]), tmp_path) == [LONG, f"{OTHER}\n{OTHER}"]


@pytest.mark.parametrize("content", [json.dumps([LONG]), json.dumps({"prompt": LONG}) + "\n{}", LONG])
def test_a_byte_order_mark_is_no_part_of_the_first_prompt(content: str, tmp_path: Path) -> None:
    assert texts_in(b"\xef\xbb\xbf" + content.encode(), tmp_path) == [LONG]


def test_half_a_surrogate_pair_can_still_be_sent(tmp_path: Path) -> None:
    (text,) = texts_in('["' + LONG + '\\ud800"]', tmp_path)

    assert text.encode() == f"{LONG}?".encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 50,
        b"null",
        b"7" * 150,
        b"[]",
        b'["short"]',
        b"[" * 150,
        b'{"conversations": 7}',
        b'[{"conversations": [7, null, {"from": "human", "value": 7}]}]',
        b'[{"messages": [{"role": ["user"], "content": [{"type": "text"}]}]}]',
    ],
)
def test_a_file_without_a_long_text_is_named(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no prompt of 200 characters"):
        texts_in(content, tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / ("x" * 300)):
        with pytest.raises(BadInput, match="cannot be read"):
            texts_of_file(path)


def test_a_device_without_end_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_texts, "LARGEST_FILE", 1 << 20)

    with pytest.raises(BadInput, match="larger than 1 MiB"):
        texts_of_file(Path("/dev/zero"))


def test_a_pipe_is_read_as_a_file() -> None:
    end, start = os.pipe()
    os.write(start, LONG.encode())
    os.close(start)

    try:
        assert texts_of_file(Path(f"/dev/fd/{end}")) == [LONG]
    finally:
        os.close(end)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=1500))
def test_any_bytes_give_texts_that_can_be_sent_or_are_refused(tmp_path: Path, content: bytes) -> None:
    try:
        texts = texts_in(content, tmp_path)
    except BadInput:
        return
    assert all(len(text.encode()) >= SHORTEST_TEXT for text in texts)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(min_size=SHORTEST_TEXT, max_size=SHORTEST_TEXT + 9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["conversations", "messages", "from", "role", "value", "prompt", "text"]), inner
        )
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(json_values)
def test_any_json_gives_texts_that_can_be_sent_or_is_refused(tmp_path: Path, document: object) -> None:
    try:
        texts = texts_in(json.dumps(document), tmp_path)
    except BadInput:
        return
    assert all(len(text.encode()) >= SHORTEST_TEXT for text in texts)


def test_built_in_prompts_are_as_long_as_asked_differ_and_follow_the_seed() -> None:
    texts = built_in_texts(24, 4000, seed=1)

    assert {len(text) for text in texts} == {4000}
    assert len(set(texts)) == 24
    assert texts == built_in_texts(24, 4000, seed=1) != built_in_texts(24, 4000, seed=2)


def test_more_built_in_prompts_than_there_are_modules() -> None:
    texts = built_in_texts(2000, 1000, seed=0)

    assert len(set(texts)) > 1990, "a start that two modules share is possible"


def test_built_in_prompts_longer_than_any_module_are_refused() -> None:
    with pytest.raises(NotFit, match="2 prompts of 100,000,000 characters"):
        built_in_texts(2, 100_000_000, seed=0)


def test_short_texts_are_joined_each_prompt_beginning_with_another() -> None:
    assert shaped(["aa", "bb", "cc"], 3, 5) == ["aa\n\nb", "bb\n\nc", "cc\n\na"]


def test_long_texts_are_cut() -> None:
    assert shaped(["a" * 50, "b" * 50], 2, 7) == ["a" * 7, "b" * 7]


def test_no_prompt_is_there_twice() -> None:
    """Two equal prompts would count as two in an interval over prompts."""
    assert shaped(["aaa", "bbb"], 5, 3) == ["aaa", "bbb"]
    assert shaped(["aaa", "aaa", "bbb"], 3, 3) == ["aaa", "bbb"]


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8), st.integers(1, 12), st.integers(1, 40))
def test_prompts_are_distinct_and_no_longer_than_asked(texts: list[str], count: int, characters: int) -> None:
    prompts = shaped(texts, count, characters)

    assert 1 <= len(prompts) <= count
    assert len(set(prompts)) == len(prompts)
    assert all(1 <= len(prompt) <= characters for prompt in prompts)


@pytest.mark.parametrize("own", [False, True])
def test_prompts_of_a_shared_prefix_end_differently(own: bool) -> None:
    texts = [f"{number:03d} {LONG}" for number in range(30)] if own else None

    found = shared_prefix(ProbePlan(prompts=12), ratio=4.0, texts=texts, tokens=100)

    assert len(set(found.suffixes)) == 12
    assert len(found.prefix) == 360
    assert {len(suffix) for suffix in found.suffixes} == {40}


def test_a_file_with_too_few_endings_for_a_shared_prefix_is_refused() -> None:
    with pytest.raises(BadInput, match="2 endings that differ"):
        shared_prefix(ProbePlan(prompts=12), ratio=4.0, texts=[LONG, OTHER, "which " * 50], tokens=100)


def answered(number: int, prompt_tokens: int) -> ProbedRequest:
    return ProbedRequest(number, 0.1, 0.2, prompt_tokens, 1, 0, 0)


def test_characters_a_token_are_those_of_all_texts_that_were_answered() -> None:
    """Text 1 was not."""
    texts = ["prose " * 100, "not answered " * 100, "x=1;" * 100]
    answers = Answers((answered(0, 150), answered(2, 350)), ("HTTP 500",), 1.0)

    assert characters_a_token(texts, answers) == (600 + 400) / (150 + 350)


def test_no_answer_and_a_count_that_no_tokenizer_makes_say_nothing() -> None:
    with pytest.raises(CannotSay, match="answers no request: HTTP 500"):
        characters_a_token(["text"], Answers((), ("HTTP 500",), 1.0))
    with pytest.raises(CannotSay, match="tokens in a text"):
        characters_a_token(["text"], Answers((answered(0, 5_000),), (), 1.0))
