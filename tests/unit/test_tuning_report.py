"""A tune's report on a terminal and as a page: it fits, and nothing from outside drives it."""

import dataclasses
import html
import io
import json

import pytest
from rich.console import Console

from dspark_cli.facts.tuning import Candidate, FailedCandidate, LatencyBound, TuningReport
from dspark_cli.report import tuning
from dspark_cli.report.json_document import to_json
from dspark_cli.report.tuning_page import tuning_page
from dspark_cli.tuning.candidates import Also, all_candidates
from dspark_cli.tuning.plan import TuningPlan
from dspark_cli.tuning.report_on import HowItEnded, report_on_tuning
from tests.cheap_tune import QUESTION
from tests.measurements import measurement

HOSTILE = "<script>alert(1)</script>\x1b[2J\nserve: rm -rf /"


def report_of(name: str = "target", bound: LatencyBound | None = None, cause: str = "it died") -> TuningReport:
    plan = TuningPlan(all_candidates(tuple(range(1, 8)), None), (1, 8), bound or LatencyBound())
    measured = [
        measurement(tokens, at, token_s=0.0008 * at, control=control)
        for at in (1, 8)
        for tokens, control in ((0, False), (1, False), (4, False), (7, False), (0, True), (2, False))
    ]
    failed = (FailedCandidate(Candidate(3), cause, "see its log"),)
    ended = HowItEnded("results.jsonl", failed, stopped="its time of 5 minutes was over")
    question = dataclasses.replace(QUESTION, target=name)
    return report_on_tuning(question, plan, None, {each.key: each for each in measured}, ended)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    console = Console(file=out, width=80, highlight=False, markup=False, emoji=False)
    monkeypatch.setattr(tuning, "result_console", lambda: console)
    return out


@pytest.mark.parametrize("bound", [LatencyBound(), LatencyBound(ttft_ms=400, tpot_ms=9.5)])
def test_tables_read_at_80_columns(shown: io.StringIO, bound: LatencyBound) -> None:
    tuning.show_tuning(report_of(bound=bound))

    text = shown.getvalue()
    tables = text.partition("serve:")[0]
    assert "\u2026" not in tables
    assert max(len(line) for line in tables.splitlines() if "num_speculative" not in line) <= 80
    for heading in ("dicted", "length", "TPOT", "TTFT", "Acceptance by position", "num_speculative_tokens_per_batch"):
        assert heading in text


def test_a_measured_a_predicted_and_a_failed_candidate_are_told_apart(shown: io.StringIO) -> None:
    report = report_of()
    tuning.show_tuning(report)

    rows = {(row.candidate.tokens, row.concurrency): row for row in report.rows}
    assert rows[4, 1].used_to_predict
    assert rows[4, 1].foretold is not None
    assert rows[4, 1].prediction_error is not None
    assert rows[7, 1].used_to_predict
    assert rows[7, 1].foretold is None
    assert rows[2, 1].measured
    assert not rows[2, 1].used_to_predict
    assert rows[5, 1].goodput is None
    assert rows[5, 1].predicted is not None
    assert "candidate-failed" in shown.getvalue()


def test_values_of_one_more_setting_stand_in_the_order_in_which_they_were_given() -> None:
    also = Also("--max-num-seqs", ("8", "16", "128"))
    plan = TuningPlan(all_candidates((1, 2), also), (1,), LatencyBound())
    measured = [measurement(tokens, 1, also=value) for value in reversed(also.values) for tokens in (2, 0, 1)]

    report = report_on_tuning(QUESTION, plan, also, {each.key: each for each in measured}, HowItEnded("results.jsonl"))

    assert [(row.candidate.also, row.candidate.tokens) for row in report.rows] == [
        (value, tokens) for value in also.values for tokens in (0, 1, 2)
    ]


def test_an_unfinished_tune_says_so_and_rules_nothing_out(shown: io.StringIO) -> None:
    plan = TuningPlan(all_candidates((1, 2, 3), None), (1,), LatencyBound())
    largest = measurement(3)
    ended = HowItEnded("results.jsonl", interrupted=True)
    report = report_on_tuning(QUESTION, plan, None, {largest.key: largest}, ended)

    tuning.show_tuning(report)

    text = shown.getvalue()
    assert "3 candidates were not measured yet" in text
    assert "ruled out" not in text
    assert "best so far at 1 at a time: 3 draft tokens" in text


def test_a_chart_of_nothing_is_left_out(shown: io.StringIO) -> None:
    tuning.show_tuning(report_of(bound=LatencyBound(tpot_ms=0.001)))

    assert "dots measured" not in shown.getvalue()


def test_hostile_names_neither_drive_the_terminal_nor_the_page(shown: io.StringIO) -> None:
    report = report_of(HOSTILE, cause=HOSTILE)
    tuning.show_tuning(report)

    assert "\x1b[2J" not in shown.getvalue()
    assert not [line for line in shown.getvalue().splitlines() if line.startswith("serve: rm")]
    page = tuning_page(report)
    assert "<script" not in page
    assert html.escape("<script>") in page


def test_the_page_has_a_figure_a_load_and_is_the_same_every_time() -> None:
    report = report_of()

    page = tuning_page(report)

    assert page.count("<svg") == 2
    assert page == tuning_page(report)
    assert "Acceptance by position" in page


def test_the_report_is_one_json_document() -> None:
    document = json.loads(to_json("tune", report_of()))

    assert document["command"] == "tune"
    assert document["best"][0]["tokens"] > 0
    assert len(document["rows"]) == 2 * 7
    assert document["rows"][1]["candidate"]["tokens"] == 1
