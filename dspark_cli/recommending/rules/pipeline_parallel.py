"""Pipeline stages: the hidden states that a drafter reads have to travel to the last one."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import Situation

OPTION = "--pipeline-parallel-size"
FIRST_WITH_STAGES = (0, 30)


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    stages = situation.options.number(OPTION) or 1
    if stages == 1 or situation.on_v1 or not situation.vllm.known:
        return
    refused = situation.vllm.release < FIRST_WITH_STAGES
    yield Finding(
        "stages-before-drafter",
        Severity.ERROR if refused else Severity.WARNING,
        f"vLLM {situation.vllm.version} refuses a drafter of this kind with {stages} pipeline stages"
        if refused
        else f"with {stages} pipeline stages only some targets hand the hidden states on that a drafter reads; others"
        " are refused at the start",
        {"pipeline_parallel_size": stages},
        f"{OPTION} 1 and a larger --tensor-parallel-size",
        source="vLLM 0.26 to 0.33 v1/worker/gpu/model_runner.py; supports_aux_hidden_states_over_pp (read, not run)",
        confidence=Confidence.LIKELY,
    )
