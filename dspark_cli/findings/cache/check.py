from dataclasses import dataclass

from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.findings.finding import Finding, NotChecked


@dataclass(frozen=True)
class CacheEvidence:
    plan: CachePlan
    alone: CachePlan | None
    release: str | None


@dataclass(frozen=True)
class CheckedCache:
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]


def check_cache(evidence: CacheEvidence) -> CheckedCache:
    return CheckedCache((), ())
