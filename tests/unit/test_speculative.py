"""The speculative configuration and how it joins the user's own arguments."""

import pytest

from dspark_cli.errors import BadInput
from dspark_cli.serving.speculative import Speculation, speculate, take_speculative_config
from dspark_cli.sources.checkpoint import Method
from tests.paths import DFLASH, DSPARK

SPECULATION = Speculation(Method.DFLASH, "/drafter", 7)


def merged(vllm_args: list[str]) -> tuple[list[str], dict[str, object]]:
    """The other arguments, and the configuration that the drafter is served with."""
    rest, given = take_speculative_config(vllm_args)
    return rest, SPECULATION.merged_with(given)


def test_the_checkpoint_decides_where_the_user_does_not() -> None:
    assert speculate(str(DSPARK), None, None) == Speculation(Method.DSPARK, str(DSPARK), 7, draft_layers=2)


def test_the_user_decides_where_they_do() -> None:
    assert speculate(str(DFLASH), "dflash", 3).tokens == 3


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(BadInput, match="eagle3"):
        speculate(str(DFLASH), "eagle3", None)


def test_other_arguments_stay_as_they_are() -> None:
    rest, config = merged(["--port", "8001", "--max_model_len=4096"])

    assert rest == ["--port", "8001", "--max_model_len=4096"]
    assert config == {"method": "dflash", "model": "/drafter", "num_speculative_tokens": 7}


@pytest.mark.parametrize(
    "given",
    [
        ["--speculative-config", '{"attention_backend": "FLASH_ATTN", "num_speculative_tokens": 5}'],
        ['--speculative_config={"attention_backend": "FLASH_ATTN", "num_speculative_tokens": 5}'],
        ["-sc", '{"attention_backend": "FLASH_ATTN", "num_speculative_tokens": 5}'],
    ],
)
def test_the_users_speculative_config_is_merged_and_wins(given: list[str]) -> None:
    _, config = merged(given)

    assert config["attention_backend"] == "FLASH_ATTN"
    assert config["num_speculative_tokens"] == 5
    assert config["model"] == "/drafter"


@pytest.mark.parametrize(
    "given",
    [
        ["--speculative-config", '{"model": "/other"}'],
        ["--speculative-config", '{"method": "dspark"}'],
        ["--speculative-config", "[1]"],
        ["--speculative-config", "{"],
        ["--speculative-config"],
        ["--speculative-config", '{"x": NaN}'],
        ["--speculative-config", "[" * 100_000],
        ["--speculative-config.model", "/other"],
        ["--speculative-conf", '{"model": "/other"}'],
        ["--spec-tokens", "3"],
        ["--spec_model=/x"],
    ],
)
def test_contradictions_are_refused(given: list[str]) -> None:
    with pytest.raises(BadInput):
        merged(given)


@pytest.mark.parametrize("tokens", ["-1", "0", "2.5", "true", '"7"', "[7]", "{}", "1e999", "1" * 400])
def test_a_number_of_tokens_that_is_none_is_refused_in_one_short_line(tokens: str) -> None:
    with pytest.raises(BadInput, match="num_speculative_tokens") as refused:
        merged(["--speculative-config", f'{{"num_speculative_tokens": {tokens}}}'])

    assert len(refused.value.what) < 300


def test_a_number_of_tokens_may_be_left_open() -> None:
    assert take_speculative_config(["-sc", '{"num_speculative_tokens": null}'])[1] == {"num_speculative_tokens": None}
