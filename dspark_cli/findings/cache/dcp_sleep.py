"""Sleep and wake-up with a replicated draft: what says which groups are sharded must survive.

It does, as run with vLLM 0.33, and as read before: block tables lie outside the pool that sleep discards (0.29 to
0.31), or in a pool that it copies to the host and back (the `runtime` tag, since 0.32). Up to 0.27 they were rebuilt,
without replication in them.
"""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.replicated_draft import geometry, replicated_draft_groups
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "dcp-sleep"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if not plan.policy.sleep_mode or not replicated_draft_groups(plan):
        return
    yield Finding(
        ID,
        Severity.INFO,
        "the server can sleep, and its drafter's KV is replicated beside a sharded target: the tables that tell the two"
        " apart survive (vLLM 0.33: drafts after wake-up were those before; 0.31 and 0.32: as read in the source)",
        geometry(plan),
        "nothing to do; to see it, compare acceptance before sleep and after wake-up: dspark-tool acceptance",
        source="second seed; vLLM 0.33, two ranks on an H200, sleep level 1; vLLM 0.32 and 0.33"
        " gpu_worker.py:initialize_from_config, sleep_mode_backend.py",
    )
