"""A replicated draft on the last of several pipeline stages: planned, and verified by nobody."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.replicated_draft import geometry, replicated_draft_groups
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "dcp-pipeline-stages"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    stages = plan.policy.pipeline_parallel
    if stages == 1 or not replicated_draft_groups(plan):
        return
    yield Finding(
        ID,
        Severity.WARNING,
        f"the drafter's KV is replicated beside a sharded target in {stages} pipeline stages: vLLM neither refuses nor"
        " tests it; only the last stage marks the draft layers as replicated, and the others keep its group without"
        " layers",
        {**geometry(plan), "pipeline_parallel": stages},
        "--pipeline-parallel-size 1, or measure acceptance before relying on it: dspark-tool acceptance",
        source="second seed; vLLM 0.32 and 0.33 worker/gpu/model_runner.py:GPUModelRunner.get_kv_cache_spec",
    )
