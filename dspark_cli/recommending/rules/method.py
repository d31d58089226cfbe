"""The speculative method: the checkpoint says it."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import CHECKPOINT, USER, speculative
from dspark_cli.recommending.situation import Situation
from dspark_cli.sources.checkpoint import Method


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    drafter = situation.drafter
    source = USER if situation.method_asked else CHECKPOINT
    yield speculative("method", str(drafter.method), situation.method_evidence, source, Confidence.CERTAIN)
    yield from _layout_not_served(situation)
    yield from _architecture_not_there(situation)
    yield from _replaced_file_settings(situation)
    yield from _of_another_method(situation)
    if not situation.on_v1:
        return
    needs_v2 = _needs_runner_v2(situation)
    if needs_v2:
        yield Finding(
            "needs-runner-v2",
            Severity.ERROR,
            f"{needs_v2}, and vLLM runs on model runner V1 here",
            {"method": str(drafter.method), "model_runner": "V1", "device": str(situation.device)},
            "unset VLLM_USE_V2_MODEL_RUNNER"
            if situation.device.is_gpu
            else "serve it on a GPU; a DFlash drafter whose layers are all of one kind runs on a CPU too",
            source="vLLM 0.33 config/vllm.py: _get_v1_model_runner_unsupported_features",
            confidence=Confidence.CERTAIN,
        )


def _needs_runner_v2(situation: Situation) -> str | None:
    drafter = situation.drafter
    if drafter.method is Method.DSPARK:
        return "DSpark is implemented for model runner V2 only"
    if drafter.is_xpress:
        return "an XPress head is implemented for model runner V2 only"
    if drafter.has_candidate_head:
        return "model runner V1 would draft without the drafter's candidate head, silently"
    if drafter.mixed:
        return "a drafter with sliding-window and full layers needs several KV cache groups, which V1's proposer lacks"
    return None


def _of_another_method(situation: Situation) -> Iterator[Finding]:
    told, asked = situation.method_of_checkpoint, situation.drafter.method
    if told is None or told is asked:
        return
    yield Finding(
        "method-of-another-drafter",
        Severity.WARNING,
        f"{situation.drafter.name} says it is a {told} drafter, and --method {asked} was asked for",
        {"checkpoint": str(told), "asked": str(asked)},
        "leave --method out",
        source=CHECKPOINT,
        confidence=Confidence.CERTAIN,
    )


def _replaced_file_settings(situation: Situation) -> Iterator[Finding]:
    if situation.options.text("--speculative-config") is None:
        return
    yield Finding(
        "speculative-config-in-file",
        Severity.WARNING,
        "the file that --config names has a speculative-config of its own, and the one on the command line replaces it"
        " whole",
        {},
        "move it to the command line, where it is merged: -- --speculative-config '{...}'",
        source="vLLM utils/argparse_utils.py: arguments of the command line come after those of the file",
        confidence=Confidence.CERTAIN,
    )


def _layout_not_served(situation: Situation) -> Iterator[Finding]:
    drafter = situation.drafter
    if drafter.method is not Method.DFLASH or not drafter.samples_from_anchor or situation.vllm.release < (0, 28):
        return
    yield Finding(
        "anchor-layout-not-served",
        Severity.ERROR,
        f"{drafter.name} was trained to draft from its block's first place (sample_from_anchor), and vLLM refuses that"
        " of a DFlash drafter",
        {},
        "a drafter with the usual layout; one of the DSpark kind with its own method",
        source="vLLM 0.28 to 0.33 spec_decode/dflash/speculator.py",
        confidence=Confidence.LIKELY if situation.on_v1 else Confidence.CERTAIN,
    )


def _architecture_not_there(situation: Situation) -> Iterator[Finding]:
    unknown = [name for name in situation.drafter.architectures if name in situation.vllm.unknown_architectures]
    if not unknown:
        return
    yield Finding(
        "architecture-not-in-release",
        Severity.WARNING,
        f"vLLM {situation.vllm.version} has no model for {', '.join(unknown)}, unless a plugin brings it",
        {},
        "a later vLLM",
        source="model_executor/models/registry.py of that vLLM",
        confidence=Confidence.LIKELY,
    )
