"""Whether speculation pays, at each load."""

import math
from collections.abc import Iterator
from statistics import median

from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.findings.tuning.evidence import TuningEvidence, at_a_time
from dspark_cli.tuning.comparing import FEWEST_REQUESTS
from dspark_cli.tuning.verdict import FEWEST_STEPS, LoadVerdict, Pays

PAYS, NOT, CLOSE, NOTHING = "speculation-pays", "speculation-does-not-pay", "too-close-to-say", "bound-never-met"
VERDICTS = (PAYS, NOT, CLOSE, NOTHING)


def check(evidence: TuningEvidence) -> Iterator[Finding | NotChecked]:
    for verdict in evidence.verdicts:
        yield _of_load(verdict, evidence)


def _of_load(verdict: LoadVerdict, evidence: TuningEvidence) -> Finding | NotChecked:
    where = at_a_time(verdict.concurrency)
    if verdict.pays is Pays.NO_BASE:
        return NotChecked(PAYS, f"no speculation was not measured at {where}")
    if verdict.pays is Pays.TOO_LITTLE:
        return NotChecked(
            PAYS,
            f"too little data at {where}: {len(verdict.best.requests)} requests, {verdict.best.draft_steps} draft "
            f"steps; it takes {FEWEST_REQUESTS} and {FEWEST_STEPS} (--prompts, --output-tokens)",
        )
    if verdict.pays is Pays.TOO_FEW:
        return NotChecked(PAYS, f"{_few_met(verdict, evidence)}: give more --prompts, or another bound")
    if verdict.pays is Pays.NOTHING:
        return _never_met(verdict, evidence, where)
    return _judged(verdict, evidence, where)


def _few_met(verdict: LoadVerdict, evidence: TuningEvidence) -> str:
    told = [
        f"{sum(map(evidence.bound.met_by, each.requests))} of {len(each.requests)} with {each.candidate.name}"
        for each in (verdict.best, verdict.base)
        if each is not None
    ]
    return f"too few requests met the bound at {at_a_time(verdict.concurrency)} to compare ({', '.join(told)})"


def _never_met(verdict: LoadVerdict, evidence: TuningEvidence, where: str) -> Finding:
    at_load = [each.requests for each in evidence.measurements if each.concurrency == verdict.concurrency]
    lowest = {}
    if evidence.bound.ttft_ms is not None:
        lowest["TTFT"] = 1000 * min(median(request.ttft_s for request in requests) for requests in at_load)
    if evidence.bound.tpot_ms is not None:
        lowest["TPOT"] = 1000 * min(median(request.tpot_s for request in requests) for requests in at_load)
    reached = " and ".join(f"{name} {value:,.1f} ms" for name, value in lowest.items())
    fewer = ", or measure a smaller --concurrency" if verdict.concurrency > 1 else ""
    return Finding(
        NOTHING,
        Severity.WARNING,
        f"with {where} no request met the latency bound ({evidence.bound.words}), with any measured number of tokens "
        f"or without speculation; the lowest median was {reached}",
        _figures(verdict, evidence)
        | {f"lowest_median_{name.lower()}_ms": round(value, 3) for name, value in lowest.items()},
        f"allow more ({', '.join(f'--{name.lower()}-ms' for name in lowest)}){fewer}",
    )


def _judged(verdict: LoadVerdict, evidence: TuningEvidence, where: str) -> Finding:
    bound, tokens = evidence.bound, verdict.best.candidate.tokens
    base = verdict.base.goodput(bound) if verdict.base else 0.0
    figures = (
        f"with {where}, {tokens} draft token{'s give' if tokens != 1 else ' gives'} "
        f"{verdict.best.goodput(bound):,.1f} {bound.unit}, no speculation {base:,.1f}{_times(verdict)}"
    )
    evidence_shown = _figures(verdict, evidence)
    if verdict.pays is Pays.YES:
        return Finding(PAYS, Severity.INFO, figures, evidence_shown, f"speculate at this load: --tokens {tokens}")
    if verdict.pays is Pays.NO:
        return Finding(
            NOT,
            Severity.WARNING,
            f"{figures}: the drafts cost more than they bring",
            evidence_shown,
            "serve without the drafter at this load, or let a schedule switch it off there",
        )
    return Finding(
        CLOSE,
        Severity.INFO,
        f"{figures}: the interval holds 1, so this tune does not tell them apart",
        evidence_shown,
        "measure more (--prompts) on a machine that does nothing else, or take the simpler server",
    )


def _times(verdict: LoadVerdict) -> str:
    ratio = verdict.ratio
    if ratio is None or ratio.high == math.inf:
        return ""
    return f": {ratio.value:.2f} times (95% interval {ratio.low:.2f} to {ratio.high:.2f})"


def _figures(verdict: LoadVerdict, evidence: TuningEvidence) -> dict[str, int | float | str | bool | None]:
    ratio = verdict.ratio
    finite = ratio is not None and ratio.high != math.inf
    return {
        "concurrency": verdict.concurrency,
        "tokens": verdict.best.candidate.tokens,
        "goodput": round(verdict.best.goodput(evidence.bound), 3),
        "goodput_without_speculation": round(verdict.base.goodput(evidence.bound), 3) if verdict.base else None,
        "ratio": round(ratio.value, 4) if ratio and finite else None,
        "ratio_low": round(ratio.low, 4) if ratio and finite else None,
        "ratio_high": round(ratio.high, 4) if ratio and finite else None,
        "machine_varied": round(verdict.drift, 4) if verdict.drift not in (None, math.inf) else None,
        "requests": len(verdict.best.requests),
        "draft_steps": verdict.best.draft_steps,
    }
