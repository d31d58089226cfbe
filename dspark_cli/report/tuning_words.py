"""What is said of a tune in words: the same on a terminal, on a page and while it runs."""

from dspark_cli.facts.tuning import Candidate, LatencyBound, TunedRow, TuningReport
from dspark_cli.report.acceptance_words import short

MINUTE, HOUR = 60, 3600


def headline(report: TuningReport) -> str:
    question = report.question
    return f"Draft tokens for {short(question.target)} with {short(question.drafter)}"


def about(report: TuningReport) -> str:
    load = report.question.load
    tool = "" if load.tool == "builtin" else f", by {load.tool}"
    return (
        f"{short(report.question.vllm)} on {short(report.question.device)}; requests of about {load.prompt_tokens:,} "
        f"tokens in and {load.output_tokens:,} out{tool}{bound_words(report.bound)}"
    )


def bound_words(bound: LatencyBound) -> str:
    return f"; goodput counts requests with {bound.words}" if bound.given else ""


def load_words(report: TuningReport, concurrency: int) -> str:
    many = "One request" if concurrency == 1 else f"{concurrency} requests"
    return f"{many} at a time, {report.question.load.requests(concurrency)} in all"


def candidate_words(candidate: Candidate) -> str:
    tokens = str(candidate.tokens) if candidate.speculates else "none"
    return tokens if candidate.also is None else f"{tokens}, {short(candidate.also, 24)}"


def goodput_name(bound: LatencyBound) -> str:
    return "goodput" if bound.given else "tokens/s"


def interval(row: TunedRow) -> str:
    if row.goodput_low is None or row.goodput_high is None:
        return "-"
    return f"{figure(row.goodput_low)}-{figure(row.goodput_high)}"


def figure(value: float | None) -> str:
    """Three digits or more."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def predicted(row: TunedRow) -> str:
    """The two at the ends are told by their own measurement, which says nothing."""
    return "used" if row.used_to_predict and row.foretold is None else figure(row.foretold)


def signed(share: float | None) -> str:
    return "-" if share is None else f"{share:+.1%}"


def prediction_sentence(report: TuningReport) -> str | None:
    quality = report.prediction
    unfinished = report.interrupted or report.stopped is not None
    why = "not measured yet" if unfinished else "ruled out without a run"
    spared = f"{quality.spared} candidate{'s were' if quality.spared != 1 else ' was'} {why}"
    if unfinished and quality.partly:
        spared += f", {quality.partly} not under every load"
    if quality.mean_error is None or quality.worst_error is None:
        return f"{spared}." if quality.spared or (unfinished and quality.partly) else None
    return (
        f"Predicted tokens/s of {quality.checked} measurement{'s' * (quality.checked != 1)}, from others: "
        f"{quality.mean_error:.1%} off on average, {quality.worst_error:.1%} at most; {spared}."
    )


def schedule_text(report: TuningReport) -> str | None:
    if report.schedule is None:
        return None
    return "[" + ", ".join(str(list(entry)) for entry in report.schedule) + "]"


def duration(seconds: float) -> str:
    if seconds < 1.5 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 1.5 * HOUR else f"{seconds / HOUR:.1f} h"
