"""The hybrid manager is off, and a sharded target with a replicated draft needs two groups all the same.

vLLM promises one group without the manager. For this mix it keeps several (`unify_hybrid_kv_cache_specs` treats
sharded and replicated layers apart, 0.32 and 0.33), and refuses nothing; what relied on the promise fails later.
"""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.replicated_draft import geometry, replicated_draft_groups
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "dcp-hybrid-manager-off"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if plan.policy.hybrid_manager or not replicated_draft_groups(plan):
        return
    yield Finding(
        ID,
        Severity.WARNING,
        f"the hybrid KV cache manager is off, and the sharded target and the replicated drafter still lie in"
        f" {len(plan.groups)} groups: the planner refuses nothing, and with a KV connector without hybrid support (the"
        " usual reason to turn the manager off) the engine fails when its first request ends",
        {**geometry(plan), "groups": len(plan.groups)},
        "leave out --disable-hybrid-kv-cache-manager and use a KV connector that supports it, or"
        " --decode-context-parallel-size 1",
        source="second seed; vLLM 0.32 and 0.33 scheduler.py:_connector_finished asserts one group,"
        " kv_cache_utils.py / kv_cache_planning.py: unify_hybrid_kv_cache_specs",
    )
