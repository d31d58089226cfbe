"""Model Runner V1 wants all layers of the drafter in one group."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "draft-layers-split"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    holding = [index for index, group in enumerate(plan.groups) if group.draft_layers]
    if plan.policy.model_runner != "V1" or len(holding) < 2:
        return
    yield Finding(
        ID,
        Severity.ERROR,
        f"the drafter's layers lie in {len(holding)} of {len(plan.groups)} groups, and model runner V1 takes them from"
        " one only: the engine refuses to start",
        {"draft_holding_groups": len(holding), "groups": len(plan.groups), "model_runner": plan.policy.model_runner},
        "serve on a GPU with model runner V2 (unset VLLM_USE_V2_MODEL_RUNNER), or take a drafter whose layers fit into"
        " one group",
        source="vLLM 0.32 v1/spec_decode/llm_base_proposer.py: All drafting layers should belong to the same kv cache"
        " group",
    )
