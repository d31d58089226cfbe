"""Attention of a replicated draft must not take the target's context parallelism for its own."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.cache.replicated_draft import geometry, replicated_draft_groups
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "dcp-backend"
ASKS_ITS_OWN_GROUP = ("FLASH_ATTN", "FLASHINFER")
"""Their metadata builders take ranks from `kv_cache_spec.dcp_sharded` (0.31 to 0.33). The `dcp_local_seq_lens` that
draft graphs are captured with come from the target's geometry; both leave them alone where the draft is replicated."""
KNOWS_NO_CONTEXT_PARALLELISM = ("TRITON_ATTN", "FLEX_ATTENTION", "ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN", "CPU_ATTN")
"""Their sources have no word of it, so that the whole local cache is what they read: right for a replicated draft."""
ASKS_THE_GLOBAL_GROUP = "MLA"
"""In the name of every backend whose builder derives from `MLACommonMetadataBuilder`, which takes the size of the
process-wide group. vLLM replicates no drafter with latent attention."""


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    if not replicated_draft_groups(plan):
        return
    if not evidence.draft_backends:
        yield NotChecked(ID, "the engine does not say which attention backend its drafter has")
    for backend in evidence.draft_backends:
        if backend in ASKS_ITS_OWN_GROUP + KNOWS_NO_CONTEXT_PARALLELISM:
            continue
        wrong = ASKS_THE_GLOBAL_GROUP in backend
        yield Finding(
            ID,
            Severity.ERROR if wrong else Severity.WARNING,
            f"the drafter's KV is replicated over {plan.policy.decode_context_parallel} ranks, and its attention"
            f" backend {backend} " + ("reads it as if it were sharded" if wrong else "is not known to read it as such"),
            {**geometry(plan), "backend": backend},
            'put "attention_backend": "FLASH_ATTN" into --speculative-config, or --decode-context-parallel-size 1',
            source="second seed; vLLM 0.32 and 0.33 flash_attn.py, flashinfer.py:"
            " get_dcp_world_size_and_rank(kv_cache_spec.dcp_sharded), mla_attention.py: get_dcp_group().world_size",
        )
