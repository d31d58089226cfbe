"""Decode context parallelism, whose replicated draft lies in a group of its own."""

from collections.abc import Iterator

from dspark_cli.findings.cache.dcp_backend import KNOWS_NO_CONTEXT_PARALLELISM
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.situation import CONNECTOR, HYBRID_OFF, Situation

DCP = "--decode-context-parallel-size"
BACKEND = "--attention-backend"
FIRST_REPLICATED = (0, 31)
RIGHT_FOR_EQUAL_HEADS = (0, 29)
Evidence = dict[str, int | float | str | bool | None]


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    ranks = situation.options.number(DCP) or 1
    if ranks > 1:
        yield from _sharded(situation, ranks)


def _sharded(situation: Situation, ranks: int) -> Iterator[Finding]:
    version = situation.vllm.version
    evidence: Evidence = {"decode_context_parallel_size": ranks}
    if situation.on_v1:
        yield Finding(
            "dcp-runner-v1",
            Severity.ERROR,
            f"model runner V1 has no replicated draft for {ranks} context parallel ranks: drafts read a sharded cache"
            " that they did not write so",
            evidence,
            "unset VLLM_USE_V2_MODEL_RUNNER, or --decode-context-parallel-size 1",
            source="vLLM 0.32 and 0.33 v1/spec_decode/utils.py (read, not run)",
            confidence=Confidence.LIKELY,
        )
    elif situation.vllm.known and situation.vllm.release < FIRST_REPLICATED:
        in_part = situation.vllm.release >= RIGHT_FOR_EQUAL_HEADS
        heads = ", which is right only where all ranks of a group hold the same draft heads" if in_part else ""
        yield Finding(
            "dcp-before-replication",
            Severity.WARNING if in_part else Severity.ERROR,
            f"vLLM {version} does not know that a drafter's KV is replicated over context parallel ranks{heads}",
            evidence,
            "vLLM 0.31 or later, or --decode-context-parallel-size 1",
            source="patches dcp_specs, dcp_slot_mapping; native since 0.31",
            confidence=Confidence.LIKELY if in_part else Confidence.CERTAIN,
        )
    backend = (situation.options.text(BACKEND) or "").upper()
    if backend in KNOWS_NO_CONTEXT_PARALLELISM:
        yield Finding(
            "dcp-target-backend",
            Severity.ERROR,
            f"{backend} reads the whole cache of one rank, so the target cannot be sharded with it: vLLM's workers end"
            " at start-up",
            {**evidence, "attention_backend": backend},
            f"leave {BACKEND} out: vLLM takes one that can",
            source="vLLM 0.33 with TRITON_ATTN on two H200: DCP not supported",
            confidence=Confidence.CERTAIN,
        )
    if situation.hybrid_off and situation.options.text(CONNECTOR) is not None:
        yield Finding(
            "dcp-hybrid-manager-off",
            Severity.ERROR,
            "the hybrid manager is off, and a sharded target with a replicated drafter keeps two groups all the same:"
            " with a KV connector the engine fails when its first request ends",
            evidence,
            f"a connector that supports several groups, without {HYBRID_OFF}",
            source="vLLM 0.32 and 0.33 v1/core/sched/scheduler.py: _connector_finished (read, not run)",
            confidence=Confidence.LIKELY,
        )
