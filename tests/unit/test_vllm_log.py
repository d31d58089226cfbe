"""What real vLLM logs say about start-up and death."""

import pytest

from dspark_cli.sources.vllm_advice import next_step_for
from dspark_cli.sources.vllm_log import Stage, address_in, cause_of_death, stage_of
from tests.paths import FIXTURES

LOGS = FIXTURES / "logs"


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("log", "first_line", "advice"),
    [
        ("0.33-gpu-no-cache-memory", "ValueError: No available memory for the cache blocks.", "max-model-len"),
        ("0.32-cpu-no-cache-memory", "ValueError: No available memory for the cache blocks.", "max-model-len"),
        ("0.32-cpu-max-model-len-too-long", "User-specified max_model_len (999999) is greater than", "made for"),
        ("0.32-cpu-unknown-argument", "main.py: error: unrecognized arguments: --nope", "--help=all"),
        ("0.32-cpu-dspark-needs-runner-v2", "Model Runner V1 does not support: dspark", "model runner V2"),
    ],
)
def test_the_cause_of_death_is_its_first_exception(log: str, first_line: str, advice: str | None) -> None:
    cause = cause_of_death(lines_of(log))

    assert cause[0].startswith(first_line)
    assert len(cause) <= 4
    assert advice is None or advice in str(next_step_for(" ".join(cause)))


@pytest.mark.parametrize("log", ["0.26-gpu-starts", "0.32-cpu-starts-and-stops", "0.33-gpu-starts-and-stops"])
def test_a_log_without_a_failure_has_no_cause_of_death(log: str) -> None:
    assert cause_of_death(lines_of(log)) == []


@pytest.mark.parametrize(
    ("log", "stages"),
    [
        ("0.26-gpu-starts", {Stage.LOADING, Stage.COMPILING, Stage.PROFILING, Stage.CAPTURING, Stage.READY}),
        (
            "0.33-gpu-starts-and-stops",
            {Stage.LOADING, Stage.COMPILING, Stage.PROFILING, Stage.CAPTURING, Stage.READY},
        ),
        ("0.33-gpu-no-cache-memory", {Stage.LOADING, Stage.COMPILING, Stage.PROFILING, Stage.CAPTURING}),
        ("0.32-cpu-starts-and-stops", {Stage.LOADING, Stage.PROFILING, Stage.READY}),
    ],
)
def test_the_stages_of_start_up_are_seen(log: str, stages: set[Stage]) -> None:
    assert {stage for stage in map(stage_of, lines_of(log)) if stage} == stages


@pytest.mark.parametrize(
    ("log", "address"),
    [
        ("0.26-gpu-starts", "http://127.0.0.1:8205"),
        ("0.33-gpu-starts-and-stops", "http://127.0.0.1:8101"),
        ("0.32-cpu-starts-and-stops", "http://127.0.0.1:18100"),
    ],
)
def test_the_address_is_one_that_can_be_called(log: str, address: str) -> None:
    assert [found for found in map(address_in, lines_of(log)) if found] == [address]
