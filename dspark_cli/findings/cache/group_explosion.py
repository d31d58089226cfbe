"""A few layers that differ from all others set the width of every group."""

from collections.abc import Iterator

from dspark_cli.facts.cache_bytes import where_bytes_go
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.findings.cache.evidence import (
    COST,
    LAYOUT_OPTION,
    NOTICEABLE_SHARE,
    WIDTH_IS_HYPOTHETICAL,
    CacheEvidence,
    compare,
    counted,
    described,
    groups_with_target,
    is_packed,
    share_of,
)
from dspark_cli.findings.finding import Finding, NotChecked, Severity

ID = "group-explosion"
GROWTH = 3
"""Times as many groups hold the target's layers. A drafter of another kind doubles them as a matter of course."""


def check(evidence: CacheEvidence) -> Iterator[Finding | NotChecked]:
    if not evidence.has_draft_layers:
        return
    if evidence.alone is None:
        yield NotChecked(ID, "the target was not planned without its drafter")
        return
    plan, alone = evidence.plan, evidence.alone
    if not is_explosion(plan, alone):
        return
    spent = where_bytes_go(plan)
    padding = spent.group_padding + spent.page_padding
    share = share_of(padding, spent.total)
    takes_capacity = share >= NOTICEABLE_SHARE
    minority = _minority(plan)
    because = f", for vLLM makes them as wide as {counted(minority[1], 'layer')} of {minority[0]}" if minority else ""
    yield Finding(
        ID,
        Severity.WARNING,
        f"{len(plan.groups)} groups of at most {counted(_width(plan), 'layer')} with the drafter,"
        f" {len(alone.groups)} without{because}; attention metadata is built for each of them at every step, and"
        f" {share:.0%} of a sequence's bytes are padding"
        + ("" if takes_capacity else ": it costs time at every step, not capacity"),
        {
            "groups": len(plan.groups),
            "groups_alone": len(alone.groups),
            "target_groups": len(groups_with_target(plan)),
            "layers_in_a_group": _width(plan),
            "minority": minority[0] if minority else None,
            "minority_layers": minority[1] if minority else None,
            COST: padding if takes_capacity else 0,
            "padding_share": share,
        },
        _advice(evidence, takes_capacity),
        source="vLLM 0.32 kv_cache_utils.py, 0.33 kv_cache_planning.py: _get_kv_cache_groups_uniform_page_size takes"
        " the smallest bucket's size",
    )


def _advice(evidence: CacheEvidence, takes_capacity: bool) -> str:
    other = (
        "a drafter whose layers are all of one kind, or of the target's, leaves the groups wide; so may a vLLM that"
        " groups layers otherwise"
    )
    if not takes_capacity:
        return other
    return f"{compare(evidence, 'group-width', 'layout')} ({LAYOUT_OPTION}; {WIDTH_IS_HYPOTHETICAL}); {other}"


def is_explosion(plan: CachePlan, alone: CachePlan) -> bool:
    """Many times the groups, and more of them than a group has layers: metadata is then built more often than a build
    is shared. The second seed's good plan, five target groups of five layers, is just no explosion."""
    groups = len(groups_with_target(plan))
    return groups >= GROWTH * len(alone.groups) and groups > _width(plan)


def _width(plan: CachePlan) -> int:
    return max((len(group.layers) for group in plan.groups), default=0)


def _minority(plan: CachePlan) -> tuple[str, int] | None:
    """The bucket with the fewest layers; a packed layout cuts groups by other rules."""
    if is_packed(plan):
        return None
    buckets: dict[int, list[KVCacheGroup]] = {}
    for group in plan.groups:
        buckets.setdefault(group.bucket, []).append(group)
    smallest = min(buckets.values(), key=_layers_of)
    return described(smallest[0]), _layers_of(smallest)


def _layers_of(groups: list[KVCacheGroup]) -> int:
    return sum(len(group.layers) for group in groups)
