"""Pages made longer than their content, so that all layers have pages of one size."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.findings.cache.evidence import (
    COST,
    LAYOUT_OPTION,
    NOTICEABLE_SHARE,
    CacheEvidence,
    compare,
    gib,
    layout_to_compare,
    share_of,
)
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "page-padding"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    plan = evidence.plan
    spent = where_bytes_go(plan)
    share = share_of(spent.page_padding, spent.total)
    if share < NOTICEABLE_SHARE:
        return
    worst = max(plan.groups, key=lambda group: group.padded_page_bytes / max(group.page_bytes, 1))
    layout = layout_to_compare(plan)
    yield Finding(
        ID,
        Severity.WARNING,
        f"{share:.0%} of a full sequence's bytes ({gib(spent.page_padding)}) are the padding of pages: the"
        f" {worst.role} group of {worst.kind} needs {worst.page_bytes:,} bytes a page and is given"
        f" {worst.padded_page_bytes:,}",
        {
            "share": share,
            COST: spent.page_padding,
            "sequence_bytes": spent.total,
            "page_bytes": worst.page_bytes,
            "padded_page_bytes": worst.padded_page_bytes,
            "padded_role": worst.role,
        },
        compare(evidence, "block-size=32", "block-size=64", *layout)
        + (f"; {LAYOUT_OPTION}, and BLNHC packs pages of different sizes" if layout else ""),
        source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: unify_kv_cache_spec_page_size",
    )
