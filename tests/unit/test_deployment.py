"""What a user asks to plan, from options of the tool's own and from pasted commands."""

import json
from typing import Any

import pytest

from dspark_cli.errors import BadInput
from dspark_cli.planning.deployment import deployment, named_model, split_command
from dspark_cli.serving.speculative import Speculation
from dspark_cli.sources.checkpoint import Method

DRAFTER = Speculation(Method.DFLASH, "drafter", 7)
OWN_WORDS: dict[str, Any] = {
    "kv_memory_bytes": None,
    "gpu_memory_bytes": None,
    "layout": None,
    "draft_kv_dtype": None,
    "keep_trailing_block": False,
}


@pytest.mark.parametrize(
    "pasted",
    [
        "vllm serve target -tp 2",
        "serve target -tp 2",
        "target -tp 2",
        "--model target -tp 2",
        "-tp 2 --model=target",
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve target \\\n  -tp 2",
        "/opt/venv/bin/vllm serve 'target' -tp 2",
    ],
)
def test_a_pasted_command_is_understood_however_much_of_it_is_given(pasted: str) -> None:
    asked = deployment(None, None, split_command(pasted))

    assert named_model(asked.vllm_args) == "target"
    assert " ".join(asked.vllm_args) in ("target -tp 2", "--model target -tp 2", "-tp 2 --model=target")
    assert asked.speculative_config is None


def test_vllms_variables_in_front_of_a_command_count() -> None:
    asked = deployment(None, None, split_command("VLLM_KV_CACHE_LAYOUT=BLNHC HF_TOKEN=x VLLM_X=1 vllm serve target"))

    assert asked.environment == (("VLLM_KV_CACHE_LAYOUT", "BLNHC"), ("VLLM_X", "1"))


def test_a_model_that_stands_elsewhere_is_left_to_vllms_parser() -> None:
    asked = deployment(None, None, split_command("vllm serve -tp 2 target"))

    assert asked.vllm_args == ("-tp", "2", "target")


@pytest.mark.parametrize(
    "pasted",
    [
        """vllm serve target -sc '{"method":"dflash","model":"drafter","num_speculative_tokens":7}'""",
        """vllm serve target --speculative-config='{"method":"dflash","model":"drafter","num_speculative_tokens":7}'""",
        "vllm serve target --spec-method dflash --spec-model=drafter --spec-tokens 7",
    ],
)
def test_a_drafter_in_a_pasted_command_is_found(pasted: str) -> None:
    asked = deployment(None, None, split_command(pasted))

    assert asked.speculative_config == {"method": "dflash", "model": "drafter", "num_speculative_tokens": 7}
    assert asked.without_drafter().scenario("alone").drafter is False


def test_the_drafter_s_own_settings_join_its_configuration() -> None:
    asked = deployment("target", DRAFTER, ["--speculative-config", '{"attention_backend": "FLASH_ATTN"}'])

    asked = asked.asking_for(**{**OWN_WORDS, "draft_kv_dtype": "fp8", "keep_trailing_block": True})

    written = asked.scenario("as asked").vllm_args
    assert json.loads(written[-1]) == {
        **DRAFTER.config(),
        "attention_backend": "FLASH_ATTN",
        "kv_cache_dtype": "fp8",
        "disable_eagle_block_drop": True,
    }


@pytest.mark.parametrize(
    ("model", "pasted", "reason"),
    [
        (None, "", "no model is named"),
        ("target", "vllm serve another", "the vLLM arguments serve another"),
        (None, "vllm serve 'target", "cannot be read as a shell would"),
        (None, "target --spec-tokens seven", "takes a number"),
    ],
)
def test_what_cannot_be_understood_is_refused(model: str | None, pasted: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        deployment(model, None, split_command(pasted))


def test_a_setting_of_the_drafter_needs_one() -> None:
    with pytest.raises(BadInput, match="there is none"):
        deployment("target", None, []).asking_for(**{**OWN_WORDS, "draft_kv_dtype": "fp8"})
