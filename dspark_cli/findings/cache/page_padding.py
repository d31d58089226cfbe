"""Pages made longer than their content, so that all layers have pages of one size."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.findings.cache.evidence import NOTICEABLE_SHARE, CacheEvidence, gib, is_packed
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "page-padding"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    spent = where_bytes_go(plan)
    share = spent.page_padding / spent.total
    if share < NOTICEABLE_SHARE:
        return
    padded = [group for group in plan.groups if group.padded_page_bytes > group.page_bytes]
    worst = max(padded, key=lambda group: group.padded_page_bytes / group.page_bytes)
    yield Finding(
        ID,
        Severity.WARNING,
        f"{share:.0%} of a full sequence's bytes ({gib(spent.page_padding)}) are the padding of pages: the"
        f" {worst.role} group of {worst.kind} needs {worst.page_bytes:,} bytes a page and is given"
        f" {worst.padded_page_bytes:,}",
        {
            "share": share,
            "padding_bytes": spent.page_padding,
            "sequence_bytes": spent.total,
            "page_bytes": worst.page_bytes,
            "padded_page_bytes": worst.padded_page_bytes,
            "padded_role": worst.role,
        },
        "compare: --what-if block-size=32 --what-if block-size=64"
        + ("" if is_packed(plan) else " --what-if layout (VLLM_KV_CACHE_LAYOUT=BLNHC packs pages of different sizes)"),
        source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: unify_kv_cache_spec_page_size",
    )
