"""DFlash on model runner V1 under decode context parallelism: written in one place, read in another.

V1 keeps the target's parallel sizes for the drafter, so its attention reads a sharded cache, and its slots are computed
as if there was one rank. V2 replicates the draft instead.
"""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "dcp-runner-v1"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    policy = evidence.plan.policy
    if policy.method != "dflash" or policy.model_runner != "V1" or policy.decode_context_parallel == 1:
        return
    yield Finding(
        ID,
        Severity.WARNING,
        f"DFlash runs on model runner V1 with its target sharded over {policy.decode_context_parallel} ranks: V1 has"
        " neither the replicated draft of this plan nor slots for a sharded one (read in its source, not run)",
        {"model_runner": policy.model_runner, "decode_context_parallel": policy.decode_context_parallel},
        "use model runner V2: unset VLLM_USE_V2_MODEL_RUNNER; or --decode-context-parallel-size 1",
        source="vLLM 0.32 and 0.33 v1/spec_decode/utils.py:_copy_and_expand_dflash_inputs,"
        " llm_base_proposer.py:_create_draft_vllm_config; worker/gpu_model_runner.py has no dcp_sharded",
    )
