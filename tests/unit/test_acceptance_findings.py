"""What the findings say of recorded servers: planted faults are named, and healthy runs raise no alarm.

The recordings are real (tests/fixtures/acceptance); tests/faults/record.py made them.
"""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dspark_cli.facts.acceptance import AcceptanceProfile
from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind
from dspark_cli.facts.traffic import UNKNOWN_TRAFFIC, Traffic
from dspark_cli.findings.acceptance.check import CHECKS, check_acceptance
from dspark_cli.findings.acceptance.evidence import AcceptanceEvidence, ExpectedAcceptance
from dspark_cli.findings.acceptance.never_pay import worth_keeping
from dspark_cli.findings.finding import Finding, NotChecked, Severity
from dspark_cli.profiling.acceptance_report import AcceptanceReport
from dspark_cli.profiling.judge import report_on
from dspark_cli.sources.acceptance_file import read_acceptance_file
from tests.paths import FIXTURES

RECORDINGS = FIXTURES / "acceptance"
FAULTS = {
    "position-0-only",
    "part-of-requests-collapse",
    "low-from-the-start",
    "cliff",
    "no-speculation",
    "too-little-data",
}
PUBLISHED = DraftCounters(10_270, 71_890, 19_871, (7506, 4887, 3084, 1925, 1236, 765, 468))
"""A drafter with its restored tokens hidden, as its authors published it."""


def recordings(pattern: str) -> list[Path]:
    found = sorted(RECORDINGS.glob(f"*{pattern}.json"))
    assert found, pattern
    return found


def named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=path.stem) for path in paths]


def report_of(path: Path) -> AcceptanceReport:
    return report_on(read_acceptance_file(path))


def ids(report: AcceptanceReport) -> set[str]:
    return {finding.id for finding in report.findings}


def of_counts(counted: DraftCounters, traffic: Traffic = UNKNOWN_TRAFFIC) -> AcceptanceReport:
    return report_on(
        Recording(SourceKind.METRICS, ("test",), None, (EnginePart("test", "tiny", "0", counted, traffic),))
    )


@pytest.mark.parametrize("path", named(recordings("healthy-?")))
def test_a_healthy_run_raises_no_alarm(path: Path) -> None:
    found = ids(report_of(path))

    assert "healthy-decay" in found
    assert not found & FAULTS


def test_there_are_healthy_runs_enough() -> None:
    assert len(recordings("healthy-?")) >= 10


@pytest.mark.parametrize("path", named(recordings("stale-noise-restored")))
def test_a_stale_draft_context_is_named_by_its_profile(path: Path) -> None:
    report = report_of(path)

    assert ids(report) & (FAULTS | {"healthy-decay"}) == {"position-0-only"}
    found = report.findings[0]
    assert found.severity is Severity.ERROR
    assert "probe" in found.advice
    assert "dspark-tool serve --draft-context validity" in found.advice


@pytest.mark.parametrize("path", named(recordings("part-stale")))
def test_stale_requests_among_healthy_ones_are_noticed(path: Path) -> None:
    """Cold requests and stale ones in one window: position 0 is low, and what gets past it goes on as in health."""
    report = report_of(path)

    assert ids(report) & (FAULTS | {"healthy-decay"}) == {"part-of-requests-collapse"}
    assert report.findings[0].evidence["collapsed_share_at_least"] > 0.5  # type: ignore[operator]


@given(st.floats(0.5, 0.9), st.floats(0.3, 0.7), st.floats(0.05, 0.7))
def test_a_mixture_is_told_from_a_weak_drafter(start: float, given_previous: float, collapsed: float) -> None:
    """The healthy part alone never looks like a mixture; what is found of a mixture is no more than there is."""
    assume(given_previous <= start)
    steps = 100_000
    healthy = [int(steps * start * given_previous**at) for at in range(7)]
    mixed = [int(count * (1 - collapsed)) for count in healthy]
    hits = Traffic(prefix_queries=1000, prefix_hits=500)

    alone = of_counts(DraftCounters(steps, 7 * steps, sum(healthy), tuple(healthy)), hits)
    together = of_counts(DraftCounters(steps, 7 * steps, sum(mixed), tuple(mixed)), hits)

    assert "part-of-requests-collapse" not in ids(alone)
    for finding in together.findings:
        if finding.id == "part-of-requests-collapse":
            assert finding.evidence["collapsed_share_at_least"] <= collapsed + 0.02  # type: ignore[operator]


@pytest.mark.parametrize("path", named(recordings("other-weights-cold") + recordings("cpu-dflash-aux-layers-cold")))
def test_a_drafter_that_does_not_fit_is_named_where_nothing_was_restored(path: Path) -> None:
    """As low as a stale context, and told apart by the hits: nothing was restored that could be stale."""
    report = report_of(path)

    assert report.prefix_hit_rate == 0
    assert ids(report) & (FAULTS | {"healthy-decay"}) == {"low-from-the-start"}


@pytest.mark.parametrize("path", named(recordings("lossy-weights-cold") + recordings("stale-zero-restored")))
def test_a_mild_harm_is_not_called_a_fault_from_the_profile_alone(path: Path) -> None:
    """A weaker drafter has the same profile: only an expectation or a probe can tell."""
    report = report_of(path)

    assert not ids(report) & FAULTS
    assert "below-expectation" in ids(
        report_on(read_acceptance_file(path), ExpectedAcceptance(2.2, 2.6, "the model card"))
    )


@pytest.mark.parametrize("path", named(recordings("no-markov-cold") + recordings("no-markov-restored")))
def test_a_healthy_start_that_hardly_goes_on_is_no_collapse(path: Path) -> None:
    report = report_of(path)

    assert ids(report) & (FAULTS | {"healthy-decay"}) == {"cliff"}
    assert report.findings[0].evidence["first_position"] == 1
    assert "Markov" in report.findings[0].advice


@pytest.mark.parametrize("path", named(recordings("past-the-block-cold")))
def test_the_end_of_the_trained_block_is_a_cliff(path: Path) -> None:
    report = report_of(path)

    assert ids(report) & FAULTS == {"cliff"}
    assert report.findings[0].evidence["first_position"] == 7
    assert "--tokens 7" in report.findings[0].advice


def test_a_published_healthy_profile_raises_no_alarm() -> None:
    assert ids(of_counts(PUBLISHED)) == {"healthy-decay", "tokens-that-never-pay"}


@pytest.mark.parametrize(
    ("accepted", "said"),
    [((700, 400, 10), "position 2 is accepted in"), ((700, 10, 10), "positions 1 to 2 are each accepted in")],
)
def test_one_position_that_never_pays_is_told_as_one(accepted: tuple[int, ...], said: str) -> None:
    report = of_counts(DraftCounters(1000, 3000, sum(accepted), accepted))

    unpaid = next(finding for finding in report.findings if finding.id == "tokens-that-never-pay")
    assert said in unpaid.what


def test_a_published_collapse_is_named() -> None:
    """Position 0 at 3%, hardly anything after it, and a long prefix restored for every request."""
    counted = DraftCounters(15_225, 106_575, 490, (457, 33, 0, 0, 0, 0, 0))
    hits = Traffic(prefix_queries=4_000_000, prefix_hits=3_900_000)

    assert "position-0-only" in ids(of_counts(counted, hits))


def test_a_collapse_of_what_a_connector_restored_is_named_too() -> None:
    """The server's own cache hits nothing there: vLLM counts the connector's tokens apart."""
    counted = DraftCounters(15_225, 106_575, 490, (457, 33, 0, 0, 0, 0, 0))
    hits = Traffic(prefix_queries=4_000_000, prefix_hits=0, external_queries=4_000_000, external_hits=3_900_000)

    report = of_counts(counted, hits)

    assert "low-from-the-start" not in ids(report)
    collapse = next(finding for finding in report.findings if finding.id == "position-0-only")
    assert "98% of the prompt tokens were restored, most of them by a KV connector" in collapse.what


def test_a_connector_that_restored_nothing_is_not_blamed() -> None:
    counted = DraftCounters(15_225, 106_575, 490, (457, 33, 0, 0, 0, 0, 0))
    none = Traffic(prefix_queries=4_000_000, prefix_hits=0, external_queries=4_000_000, external_hits=0)

    assert ids(of_counts(counted, none)) & FAULTS == {"low-from-the-start"}


def test_a_collapse_with_nothing_restored_is_not_blamed_on_prefixes() -> None:
    counted = DraftCounters(15_225, 106_575, 490, (457, 33, 0, 0, 0, 0, 0))
    no_hits = Traffic(prefix_queries=4_000_000, prefix_hits=0)

    assert ids(of_counts(counted, no_hits)) & FAULTS == {"low-from-the-start"}


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param((0.75, 0.55, 0.40), id="three tokens"),
        pytest.param((0.95, 0.92, 0.90, 0.88, 0.86), id="very good"),
        pytest.param((0.8,), id="one token"),
        pytest.param((0.5, 0.25, 0.12), id="chat at temperature 1"),
        pytest.param(tuple(0.7 * 0.55**at for at in range(15)), id="fifteen tokens"),
    ],
)
def test_profiles_of_other_healthy_drafters_raise_no_alarm(rates: tuple[float, ...]) -> None:
    steps = 20_000
    at = tuple(int(steps * rate) for rate in rates)
    hits = Traffic(prefix_queries=1000, prefix_hits=600)

    report = of_counts(DraftCounters(steps, steps * len(at), sum(at), at), hits)

    assert all(finding.severity is Severity.INFO for finding in report.findings)


def test_drafters_that_copy_are_no_error() -> None:
    """n-gram and suffix drafts go on better than they start, in health: a warning that says so, and exit code 0."""
    at = (7_000, 5_200, 4_000, 3_000)

    report = of_counts(DraftCounters(20_000, 80_000, sum(at), at))

    assert max(finding.severity for finding in report.findings) is Severity.WARNING
    assert "n-gram" in report.findings[0].advice


def test_half_of_the_requests_dead_beside_an_excellent_half_is_noticed() -> None:
    at = tuple(int(20_000 * 0.475 * 0.95**position) for position in range(7))

    assert "part-of-requests-collapse" in ids(of_counts(DraftCounters(20_000, 140_000, sum(at), at)))


def test_a_depth_that_changes_from_step_to_step_is_no_cliff() -> None:
    at = (16_000, 1_200, 900, 600, 400)

    report = of_counts(DraftCounters(20_000, 28_000, sum(at), at))

    assert "cliff" not in ids(report)
    assert "1.4 of 5 tokens" in next(check.why for check in report.not_checked if check.id == "cliff")


@pytest.mark.parametrize("at", [(900, 200, 45), (420, 10, 0, 0, 0), (400, 0, 0, 0, 0, 0, 0)])
def test_what_hardly_goes_on_is_not_called_healthy(at: tuple[int, ...]) -> None:
    report = of_counts(DraftCounters(1_000, 1_000 * len(at), sum(at), at))

    assert not ids(report) & {"healthy-decay", "modest-start"}


@pytest.mark.parametrize("drafts", [0, 1, 5, 199])
def test_a_handful_of_drafts_is_no_verdict(drafts: int) -> None:
    report = of_counts(DraftCounters(drafts, 7 * drafts, 0, (0,) * 7))

    assert ids(report) == {"too-little-data"}
    assert {check.id for check in report.not_checked} >= {"position-0-only", "low-from-the-start", "cliff"}


def test_totals_without_positions_leave_checks_unmade() -> None:
    report = of_counts(DraftCounters(84_278, 589_946, 239_307, ()))

    assert not report.findings
    assert {check.id for check in report.not_checked} >= {"position-0-only", "cliff", "healthy-decay"}


def test_no_drafter_is_a_finding_and_leaves_the_rest_unchecked() -> None:
    report = report_on(Recording(SourceKind.METRICS, ("test",), None, (), speculates=False))

    assert ids(report) == {"no-speculation"}
    assert all(
        "no drafter" in check.why or "takes" in check.why or "given" in check.why for check in report.not_checked
    )


def test_every_check_without_data_says_so_or_finds_what_is_missing() -> None:
    nothing = AcceptanceEvidence(profile=None)

    for check in CHECKS:
        answers = list(check(nothing))
        assert all(isinstance(answer, NotChecked) or answer.id == "too-little-data" for answer in answers)


@pytest.mark.parametrize(
    ("band", "fires"),
    [((2.5, 3.1), False), ((2.95, 3.4), False), ((3.1, 3.4), True), ((3.4, 4.1), True), ((1.0, 2.0), False)],
)
def test_the_band_is_held_against_the_interval(band: tuple[float, float], fires: bool) -> None:
    """The published profile has a length of 2.93 to 2.97."""
    evidence = AcceptanceEvidence(AcceptanceProfile.of(PUBLISHED), expected=ExpectedAcceptance(*band, "the model card"))

    checked = check_acceptance(evidence)

    assert ("below-expectation" in {finding.id for finding in checked.findings}) is fires


def test_tokens_to_keep_are_those_that_pay() -> None:
    profile = AcceptanceProfile.of(PUBLISHED)

    assert worth_keeping(profile, 0.05) == 6
    assert worth_keeping(profile, 0.10) == 5
    assert worth_keeping(profile, 0.01) == 7


def test_findings_come_worst_first_with_evidence_that_json_can_hold() -> None:
    report = report_of(recordings("stale-noise-restored")[0])

    ranks = [finding.severity.rank for finding in report.findings]
    assert ranks == sorted(ranks, reverse=True)
    assert all(isinstance(finding, Finding) and finding.advice for finding in report.findings)
    assert report.findings[0].evidence["drafted_tokens"] == report.recording.counted.draft_tokens
