"""Every check of a tune."""

from dspark_cli.findings.acceptance.check import CheckedAcceptance, worst_first
from dspark_cli.findings.finding import Finding, NotChecked
from dspark_cli.findings.tuning import best_count, doubts, pays, predicting, scheduling
from dspark_cli.findings.tuning.evidence import TuningEvidence

CHECKS = (pays.check, best_count.check, scheduling.check, predicting.check, doubts.check)


def check_tuning(evidence: TuningEvidence) -> CheckedAcceptance:
    """Findings, the most severe first; and what could not be checked."""
    answers = [answer for check in CHECKS for answer in check(evidence)]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return CheckedAcceptance(worst_first(findings), tuple(each for each in answers if isinstance(each, NotChecked)))
