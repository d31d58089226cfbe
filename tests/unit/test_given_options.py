"""Options of vLLM as a user gives them, read by name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.recommending.given_options import GivenOptions
from dspark_cli.serving.vllm_options import option_values, whole_number, with_long_names

NAMES = st.from_regex(r"--[a-z]{2,8}(-[a-z]{2,8}){0,2}", fullmatch=True).filter(
    lambda name: not name.startswith("--no-")
)
VALUES = st.text(min_size=1, max_size=12).filter(lambda value: not value.startswith("-"))


@pytest.mark.parametrize(
    ("words", "option", "number"),
    [
        (["--max-model-len", "4096"], "--max-model-len", 4096),
        (["--max-model-len=4096"], "--max-model-len", 4096),
        (["--max_model_len", "4096"], "--max-model-len", 4096),
        (["--max-model-len", "32k"], "--max-model-len", 32_000),
        (["--max-model-len", "32K"], "--max-model-len", 32_768),
        (["-tp", "2"], "--tensor-parallel-size", 2),
        (["-dcp", "4"], "--decode-context-parallel-size", 4),
        (["--max-model-len", "1", "--max-model-len", "2"], "--max-model-len", 2),
        (["--max-model-len", "many"], "--max-model-len", None),
        (["--max-model-len"], "--max-model-len", None),
        ([], "--max-model-len", None),
    ],
)
def test_numbers(words: list[str], option: str, number: int | None) -> None:
    assert GivenOptions(words).number(option) == number


@pytest.mark.parametrize(
    ("words", "on"),
    [
        (["--enable-lora"], True),
        (["--enable-lora", "--port", "1"], True),
        (["--no-enable-lora"], False),
        (["--enable-lora=false"], False),
        (["--no-enable-lora", "--enable-lora"], True),
        (["--port", "1"], None),
    ],
)
def test_switches(words: list[str], on: bool | None) -> None:
    assert GivenOptions(words).is_on("--enable-lora") is on


def test_the_file_that_config_names_counts_less_than_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("max-model-len: 2048\nenable-lora: true\nport: 8001\n")

    options = GivenOptions(["--config", str(file), "--port", "9000"])

    assert (options.number("--max-model-len"), options.is_on("--enable-lora")) == (2048, True)
    assert options.value("--port") == 9000


def test_what_the_file_sets_to_false_is_not_given_for_vllm_drops_it(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("enable-lora: false\nno-enable-chunked-prefill: true\n")

    options = GivenOptions(["--config", str(file)])

    assert options.is_on("--enable-lora") is None
    assert options.is_on("--enable-chunked-prefill") is False
    assert options.switched_off_in_file == ["enable-lora"]


def test_a_negative_number_is_a_value() -> None:
    assert GivenOptions(["--seed", "-1", "--port", "8000"]).text("--seed") == "-1"


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6, unique_by=lambda pair: pair[0]))
def test_what_is_given_is_found(pairs: list[tuple[str, str]]) -> None:
    options = GivenOptions([word for pair in pairs for word in pair])

    assert all(options.text(name) == value for name, value in pairs)


@given(st.lists(st.text(max_size=8), max_size=8))
def test_no_words_break_it(words: list[str]) -> None:
    options = GivenOptions(words)

    assert options.number("--port") is None or options.number("--port") >= 0  # type: ignore[operator]


@pytest.mark.parametrize("text", ["9" * 4299, "9" * 4299 + "K", "9" * 4299 + "g", "1" * 19, "0", "-1", "1.e400", "nan"])
def test_what_is_no_size_is_none(text: str) -> None:
    assert whole_number(text) is None


ALIASES_OF_ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(ALIASES_OF_ALIASES, id="aliases of aliases"),
        pytest.param(f"text: &text {'x' * 100_000}\nlist: [{', '.join(['*text'] * 1000)}]", id="a long text repeated"),
        pytest.param(
            f"text: &text {'x' * 100_000}\nlist: [{', '.join(['{*text : 1}'] * 1000)}]", id="a long key repeated"
        ),
        pytest.param("a: &a {b: *a}", id="a dictionary within itself"),
        pytest.param("a: &a [*a]", id="a list within itself"),
        pytest.param("a: {2020-01-01: 1}", id="a date for a key"),
        pytest.param(f"max-num-seqs: 0x{'f' * 5000}", id="a number too long to print"),
        pytest.param(f"a: {'[' * 5000}", id="nested without end"),
        pytest.param("!!python/object/apply:os.system [true]", id="a call"),
        pytest.param("x" * (1 << 20) + ": 1", id="too large"),
    ],
)
@pytest.mark.timeout(60)
def test_no_configuration_file_breaks_it(content: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(content)

    assert GivenOptions(["--config", str(file), "--port", "1"]).number("--port") == 1


def test_aliases_that_repeat_little_are_read(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("max-model-len: &length 2048\nmax-num-batched-tokens: *length\n")

    assert GivenOptions(["--config", str(file)]).number("--max-num-batched-tokens") == 2048


@pytest.mark.parametrize(
    ("word", "long"),
    [
        ("-O3", "--optimization-level=3"),
        ("-O=3", "--optimization-level=3"),
        ("-O", "--optimization-level"),
        ("-cc.mode=3", "--compilation-config.mode=3"),
        ("-q=awq", "--quantization=awq"),
        ("-ep", "--enable-expert-parallel"),
        ("-1", "-1"),
        ("--port", "--port"),
    ],
)
def test_short_names_have_long_ones(word: str, long: str) -> None:
    assert with_long_names([word]) == [long]


def test_a_short_option_ends_the_values_of_the_one_before_it() -> None:
    assert option_values(["--served-model-name", "a", "-tp", "2"], "--served-model-name") == ["a"]
