"""Sequences longer than the drafter was made for."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import CacheEvidence
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "drafter-trained-shorter"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    policy, length = evidence.plan.policy, evidence.plan.max_model_len
    if policy.method is None:
        return
    trained = policy.drafter_trained_tokens
    if trained is None:
        yield NotChecked(ID, "the drafter's configuration has no max_position_embeddings")
    elif trained < length:
        yield Finding(
            ID,
            Severity.WARNING,
            f"sequences may have {length:,} tokens, and the drafter was made for {trained:,}: beyond them acceptance"
            " falls, cold and cached alike",
            {"max_model_len": length, "drafter_trained_tokens": trained},
            f"--max-model-len {trained}, or a drafter made for longer sequences",
            source="vLLM up to 0.32 reads past the drafter's RoPE table; 0.33 lowers --max-model-len instead"
            " (config/vllm.py:_limit_max_model_len_to_draft)",
        )
