"""How good the predictions were, and what makes them wrong."""

from collections.abc import Iterator
from statistics import fmean

from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.findings.tuning.evidence import TuningEvidence

GOOD, POOR, BLOCK = "prediction-held", "prediction-was-poor", "acceptance-changes-with-block-length"
POOR_FROM = 0.15


def check(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    errors = [abs(each.error) for each in evidence.checked]
    if not errors:
        yield NotChecked(GOOD, "no measured number lies between two others; --all with more --tokens would check it")
    else:
        yield _quality(errors)
    shown = [effect for effect in evidence.effects if effect.shown]
    if shown:
        worst = max(shown, key=lambda effect: abs(effect.measured - effect.of_longest))
        yield Finding(
            BLOCK,
            Severity.INFO,
            f"with blocks of {worst.tokens} the acceptance length is {worst.measured:.2f}; the first {worst.tokens} "
            f"positions of blocks of {worst.longest} give {worst.of_longest:.2f}. So positions depend on how long the "
            "block is, and one run at the largest number does not tell all of acceptance",
            {
                "tokens": worst.tokens,
                "longest": worst.longest,
                "acceptance_length": round(worst.measured, 4),
                "of_longest": round(worst.of_longest, 4),
            },
            "predictions are given twice the tolerance, so that more is measured; --all measures everything",
        )


def _quality(errors: list[float]) -> Finding:
    mean, worst = fmean(errors), max(errors)
    poor = worst > POOR_FROM
    return Finding(
        POOR if poor else GOOD,
        Severity.WARNING if poor else Severity.INFO,
        f"measured throughput and its prediction from other measurements differ by {mean:.1%} on average, "
        f"{worst:.1%} at most, in {len(errors)} case{'s' * (len(errors) != 1)}",
        {"checked": len(errors), "mean_error": round(mean, 4), "worst_error": round(worst, 4)},
        "measure everything: --all, on a machine that does nothing else"
        if poor
        else "predictions can be trusted here to leave candidates out",
    )
