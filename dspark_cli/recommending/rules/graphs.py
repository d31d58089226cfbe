"""CUDA graphs of target and drafter."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.rules.draft_tokens import SCHEDULE
from dspark_cli.recommending.saying import of_vllm
from dspark_cli.recommending.situation import Situation

OPTION = "--compilation-config"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    if not situation.device.is_gpu:
        return
    v1_schedule = situation.on_v1 and SCHEDULE in situation.given
    yield of_vllm(
        OPTION,
        None,
        "vLLM's: full graphs for decode steps, the drafter's among them"
        if not v1_schedule
        else "vLLM goes to piecewise graphs for a schedule of depths on model runner V1",
        "vLLM 0.33 spec_decode/dflash/speculator.py: init_cudagraph_manager; run by this project on an H200",
        Confidence.LIKELY,
    )
    if situation.options.is_on("--enforce-eager"):
        yield Finding(
            "eager-drafts",
            Severity.WARNING,
            "--enforce-eager: every draft step is launched kernel by kernel, which costs most where speculation pays"
            " most, at few requests",
            {},
            "leave --enforce-eager out, except to debug",
            source="a draft step of the tiny pair is under 1 ms in its graph (H200, vLLM 0.33)",
            confidence=Confidence.LIKELY,
        )
