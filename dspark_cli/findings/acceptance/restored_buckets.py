"""The engine itself counts drafts by how many tokens of their request were restored, and restored ones collapse."""

from collections.abc import Iterator

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_context import OFF, RestoredBucket, buckets_of
from dspark_cli.findings.acceptance.evidence import FEWEST_DRAFTS, HIDING, LASTING_CURE, AcceptanceEvidence
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity

ID = "restored-requests-collapse"
COLLAPSED_BELOW = 0.5
"""Kept share of the accepted tokens of a step, the whole interval of both lengths below it. Stale draft KV kept 1 to
13%, hidden context 71% and more; other text among restored requests explains a modest fall, hardly this one."""


def check(evidence: AcceptanceEvidence) -> Iterator[Finding | NotChecked]:
    buckets = [bucket for bucket in buckets_of(evidence.contexts) if bucket.counted.drafts]
    if not buckets:
        return  # no server counts by restored tokens, or none drafted
    cold = next((bucket for bucket in buckets if bucket.restored_to == 1), None)
    restored = [bucket for bucket in buckets if bucket.restored_from > 0]
    if not restored:
        yield NotChecked(ID, "no draft step of a request with restored tokens was counted")
        return
    enough = [bucket for bucket in restored if bucket.counted.drafts >= FEWEST_DRAFTS]
    if cold is None or cold.counted.drafts < FEWEST_DRAFTS or not enough:
        yield NotChecked(ID, f"it takes {FEWEST_DRAFTS} draft steps of requests with restored tokens, and without any")
        return
    baseline = AcceptanceProfile.of(cold.counted)
    collapsed = [bucket for bucket in enough if _kept_at_most(bucket, baseline) < COLLAPSED_BELOW]
    if collapsed:
        yield _finding(evidence, baseline, collapsed, enough)


def _finding(
    evidence: AcceptanceEvidence,
    baseline: AcceptanceProfile,
    collapsed: list[RestoredBucket],
    enough: list[RestoredBucket],
) -> Finding:
    worst = min(collapsed, key=lambda bucket: _kept_at_most(bucket, baseline))
    profile = AcceptanceProfile.of(worst.counted)
    by_length = "; ".join(f"{bucket.name}: {_length(bucket):.2f}" for bucket in enough)
    policies = sorted({server.context.policy for server in evidence.contexts if server.context.active})
    return Finding(
        ID,
        Severity.ERROR,
        f"requests with {worst.name} restored tokens have an acceptance length of "
        f"{profile.mean_acceptance_length:.2f}, those with none {baseline.mean_acceptance_length:.2f} (by restored "
        f"tokens: {by_length}): the drafter reads what is no context of theirs",
        {
            "restored_from": worst.restored_from,
            "restored_length": round(profile.mean_acceptance_length, 4),
            "restored_draft_steps": profile.drafts,
            "cold_length": round(baseline.mean_acceptance_length, 4),
            "cold_draft_steps": baseline.drafts,
            "kept_at_most": round(_kept_at_most(worst, baseline), 4),
            "policy": ", ".join(policies) or OFF,
        },
        _advice(policies),
        source="the engine's own counts of draft steps, by tokens restored at the request's latest admission",
        confidence=Confidence.LIKELY,  # another kind of text among restored requests cannot be told from here
    )


def _advice(policies: list[str]) -> str:
    probe = "dspark-tool probe --url URL compares equal prompts, cold and restored"
    if policies:
        return f"the draft context is checked (policy {', '.join(policies)}), and this got past it: report it; {probe}"
    return (
        f"the restored blocks hold no draft KV of these tokens: {HIDING}, and {LASTING_CURE}; until then "
        f"--no-enable-prefix-caching; {probe}"
    )


def _kept_at_most(bucket: RestoredBucket, baseline: AcceptanceProfile) -> float:
    """The upper end of the share of a step's accepted tokens that restored requests keep; infinite where unknown."""
    profile = AcceptanceProfile.of(bucket.counted)
    if profile.length_high is None or baseline.length_low is None or baseline.length_low <= 1:
        return float("inf")
    return (profile.length_high - 1) / (baseline.length_low - 1)


def _length(bucket: RestoredBucket) -> float:
    return 1 + bucket.counted.accepted / bucket.counted.drafts
