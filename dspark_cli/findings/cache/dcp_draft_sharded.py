"""A drafter without latent attention beside a sharded target, in releases that shard its KV too.

vLLM replicates such a draft since 0.31 (see `replicated_draft`). Up to 0.28 its KV is written as if there was one rank,
into blocks that stand for the tokens of all; in 0.29 and 0.30 slots and reads are sharded alike, which is right only
where all ranks of a group hold the same draft KV heads.
"""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.kv_heads_copied import has_a_drafter_to_replicate
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "dcp-draft-sharded"
METHODS = ("dflash", "dspark")
SHARDED_ALIKE_SINCE, REPLICATED_SINCE = "0.29", "0.31"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    policy, ranks = plan.policy, plan.policy.decode_context_parallel
    if policy.method not in METHODS or policy.model_runner != "V2" or ranks == 1:
        return
    if not has_a_drafter_to_replicate(plan) or evidence.release_is_at_least(REPLICATED_SINCE):
        return
    if evidence.release is None:
        yield NotChecked(ID, "it depends on vLLM's release, which is not known")
        return
    alike = evidence.release_is_at_least(SHARDED_ALIKE_SINCE)
    equal_heads = policy.tensor_parallel // ranks
    yield Finding(
        ID,
        Severity.WARNING if alike else Severity.ERROR,
        f"vLLM {evidence.release} "
        + (
            f"shards the drafter's KV over {ranks} ranks: with more than {equal_heads} draft KV heads they"
            " hold different ones, and acceptance falls"
            if alike
            else f"writes the drafter's KV as if there was one rank, into blocks that stand for {ranks} ranks' tokens:"
            " drafts read other requests' KV"
        ),
        {
            "release": evidence.release,
            "decode_context_parallel": ranks,
            "tensor_parallel": policy.tensor_parallel,
        },
        f"vLLM {REPLICATED_SINCE} or later, or --decode-context-parallel-size 1",
        source="vLLM 0.26 to 0.30 dflash/speculator.py:_prepare_dflash_inputs_kernel, flash_attn.py:_forward_with_dcp",
        fixed_since=REPLICATED_SINCE,
    )
