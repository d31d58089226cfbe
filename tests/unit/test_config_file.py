"""The configuration file of a recommendation says what the arguments say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dspark_cli.errors import BadInput
from dspark_cli.recommending.config_file import config_file
from dspark_cli.recommending.recommendation import Recommendation

CONFIG: dict[str, Any] = {"method": "dflash", "model": "/drafter", "num_speculative_tokens": 7}


def settings_of(*vllm_args: str) -> dict[str, Any]:
    """What the file has beside the target and the speculative configuration."""
    recommendation = Recommendation(
        "/target", "/drafter", "vllm 0.33.0", "1 x H200", "V2", (), (), (), (), CONFIG, vllm_args, ()
    )
    settings: dict[str, Any] = yaml.safe_load(config_file(recommendation))
    assert (settings.pop("model"), settings.pop("speculative-config")) == ("/target", CONFIG)
    return settings


@pytest.mark.parametrize(
    ("vllm_args", "settings"),
    [
        (["-O3"], {"optimization-level": "3"}),
        (["-O", "3"], {"optimization-level": "3"}),
        (["-cc.mode=3"], {"compilation-config.mode": "3"}),
        (["--kv_transfer_config.kv_connector", "X"], {"kv-transfer-config.kv_connector": "X"}),
        (["-q", "awq", "-ep"], {"quantization": "awq", "enable-expert-parallel": True}),
        (["--served-model-name", "a", "b", "--seed", "-1"], {"served-model-name": ["a", "b"], "seed": "-1"}),
        (["--port", "1", "--port=2"], {"port": "2"}),
        (["--no-enable-prefix-caching"], {"no-enable-prefix-caching": True}),
        (["--model", "/another"], {}),
    ],
)
def test_every_spelling_of_an_option_is_one_that_the_file_can_have(
    vllm_args: list[str], settings: dict[str, Any]
) -> None:
    assert settings_of(*vllm_args) == settings


@pytest.mark.parametrize("word", ["/another", "-tp2", "-", "-unknown"])
def test_what_has_no_place_in_the_file_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match="has no place"):
        settings_of(word)


def test_values_that_add_up_are_not_dropped_in_silence() -> None:
    with pytest.raises(BadInput, match="--middleware is given several times"):
        settings_of("--middleware", "a", "--middleware", "b")


def test_the_settings_of_the_users_own_file_are_in_it(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("model: /other\nport: 8001\nmax-model-len: 4096\nspeculative-config: {method: eagle}\n")

    assert settings_of("--config", str(own), "--port", "9000") == {"port": "9000", "max-model-len": "4096"}


def test_what_vllm_drops_of_the_users_own_file_is_not(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("headless: false\nenable-prefix-caching: false\nport: 8001\n")

    assert settings_of("--config", str(own)) == {"port": "8001"}


def test_the_secrets_of_the_users_own_file_are_not(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("api-key: [sk-one, sk-two]\nhf-token: sk-three\nport: 8001\n")

    assert settings_of("--config", str(own)) == {"port": "8001"}


@pytest.mark.parametrize("content", [None, "", "- a list", "a: &a [*a]"])
def test_a_file_of_the_user_that_cannot_be_read_is_told(tmp_path: Path, content: str | None) -> None:
    own = tmp_path / "own.yaml"
    if content is not None:
        own.write_text(content)

    with pytest.raises(BadInput, match="no settings that can be read"):
        settings_of("--config", str(own))
