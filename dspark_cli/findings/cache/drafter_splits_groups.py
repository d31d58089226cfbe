"""The drafter makes vLLM cut the target's layers into more groups."""

from collections.abc import Iterator

from dspark_cli.findings.cache.evidence import (
    WIDTH_IS_HYPOTHETICAL,
    CacheEvidence,
    compare,
    counted,
    groups_with_target,
)
from dspark_cli.findings.cache.group_explosion import is_explosion
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "drafter-splits-groups"


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    if not evidence.has_draft_layers:
        return
    if evidence.alone is None:
        yield NotChecked(ID, "the target was not planned without its drafter")
        return
    with_drafter, alone = groups_with_target(evidence.plan), evidence.alone.groups
    if len(with_drafter) <= len(alone) or is_explosion(evidence.plan, evidence.alone):
        return
    width, width_alone = (max((len(group.layers) for group in groups), default=0) for groups in (with_drafter, alone))
    yield Finding(
        ID,
        Severity.INFO,
        f"the target's layers lie in {len(with_drafter)} groups of at most {counted(width, 'layer')} with the drafter,"
        f" and in {len(alone)} of {width_alone} without: each has a block table and attention metadata of its own",
        {
            "target_groups": len(with_drafter),
            "target_groups_alone": len(alone),
            "layers_in_a_group": width,
            "layers_in_a_group_alone": width_alone,
        },
        f"nothing to do while there are few; {compare(evidence, 'group-width')} ({WIDTH_IS_HYPOTHETICAL})",
        source="vLLM 0.32 kv_cache_utils.py:_get_kv_cache_groups_uniform_page_size",
    )
