"""The probe's verdict: over recorded probes of real servers, and where it must not be given."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dspark_cli.facts.draft_counters import DraftCounters
from dspark_cli.facts.probe import Phase, PhaseKind, ProbedRequest, ProbeResult, ServerFacts, Verdict
from dspark_cli.facts.recording import EnginePart, Recording, SourceKind
from dspark_cli.facts.traffic import Traffic
from dspark_cli.probing.comparison import compare
from dspark_cli.probing.probe_report import ProbeReport, report_on_probe
from tests.paths import FIXTURES

PROBES = FIXTURES / "probes"
EXPECTED = {
    "stale-noise": Verdict.HARMFUL,
    "h200-dflash-stale-zero": Verdict.HARMFUL,
    "h200-dspark-stale-zero": Verdict.HARMFUL,
    "cpu-dflash-stale-zero": Verdict.HARMLESS,
    "other-weights": Verdict.HARMLESS,
    "length-limit": Verdict.HARMLESS,
    "no-caching": Verdict.NOT_EXERCISED,
    "few": Verdict.CANNOT_SAY,
    "healthy": Verdict.HARMLESS,
}
"""The planted fault, as the file's name has it, and what the probe must say of restored prefixes. Zeros for all that
was restored cost little on the CPU's blocks of 128, for the last one is computed again."""


def recorded(name: str) -> list[Path]:
    found = sorted(PROBES.glob(f"*{name}*.json"))
    assert found, name
    return found


def result_in(path: Path) -> ProbeResult:
    return TypeAdapter(ProbeResult).validate_json(path.read_text())


def report_of(path: Path) -> ProbeReport:
    return report_on_probe(result_in(path))


def ids(report: ProbeReport) -> set[str]:
    return {finding.id for finding in report.findings}


@pytest.mark.parametrize(
    ("path", "verdict"),
    [pytest.param(path, verdict, id=path.stem) for fault, verdict in EXPECTED.items() for path in recorded(fault)],
)
def test_a_planted_fault_gets_its_verdict(path: Path, verdict: Verdict) -> None:
    assert report_of(path).verdict.verdict is verdict


def test_ten_healthy_probes_raise_no_alarm() -> None:
    healthy = recorded("healthy")

    assert len(healthy) >= 10
    for path in healthy:
        assert not ids(report_of(path)) - {"healthy-decay", "tokens-that-never-pay"}, path.stem


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in recorded("stale-noise")])
def test_stale_drafts_are_position_0_only_and_follow_what_is_restored(path: Path) -> None:
    report = report_of(path)

    assert {"collapse-follows-cached-length", "position-0-only"} <= ids(report)
    assert report.restored is not None
    assert report.restored.mean_acceptance_length < 1.15
    assert report.cold is not None
    assert report.cold.mean_acceptance_length > 1.8


def test_harm_that_grows_with_what_is_restored_is_said_to() -> None:
    report = report_of(recorded("h200-dflash-stale-zero")[0])

    found = next(finding for finding in report.findings if finding.id == "collapse-follows-cached-length")
    assert found.evidence["grows_with_cached_length"] is True
    assert "the more is restored, the worse" in found.what


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in recorded("other-weights")])
def test_a_drafter_that_does_not_fit_is_not_blamed_on_prefixes(path: Path) -> None:
    found = ids(report_of(path))

    assert "low-from-the-start" in found
    assert not found & {"collapse-follows-cached-length", "position-0-only", "falls-with-prompt-length"}


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in recorded("length-limit")])
def test_a_fall_with_length_is_another_fault(path: Path) -> None:
    """Cold and restored prompts of one length are alike; short ones are better."""
    found = ids(report_of(path))

    assert "falls-with-prompt-length" in found
    assert "collapse-follows-cached-length" not in found


def test_caching_that_is_off_is_named() -> None:
    verdict = report_of(recorded("no-caching")[0]).verdict

    assert "prefix caching is off" in verdict.why
    assert "--enable-prefix-caching" in verdict.next_step


# From here on, phases are made up: what must hold whatever a server does.


def request(prompt: int, accepted: int, steps: int) -> ProbedRequest:
    return ProbedRequest(prompt, 0.1, 1.0, 1000, accepted + steps + 1, steps, accepted)


def phase(
    name: str,
    kind: PhaseKind,
    accepted: list[int],
    *,
    steps: int = 30,
    cached: float = 0.0,
    others: int = 0,
    merged: int = 0,
) -> Phase:
    requests = tuple(request(prompt, each, steps) for prompt, each in enumerate(accepted))
    drafts = steps * len(accepted) + merged
    counted = DraftCounters(drafts, 7 * drafts, sum(accepted), (sum(accepted),) if sum(accepted) <= drafts else ())
    traffic = Traffic(1000, 100, 1000 * len(accepted), int(cached * len(accepted)), 0, 0, 0, len(accepted) + others)
    part = EnginePart("http://test", "tiny", "0", counted, traffic)
    return Phase(
        name=name,
        kind=kind,
        asked_share=0.0 if kind is PhaseKind.COLD else 1.0,
        seconds=1.0,
        requests=requests,
        failed=(),
        recording=Recording(SourceKind.PROBE, ("http://test",), 1.0, (part,)),
        profile=None,
        other_requests=others,
        settled=True,
        steps_merged=None if others else merged / drafts,
    )


SERVER = ServerFacts("http://test", "tiny", ("0",), 4096, 16, 100_000, True, 0)
COLD = [20 + prompt % 7 for prompt in range(16)]


def result(*phases: Phase, server: ServerFacts = SERVER, interrupted: bool = False) -> ProbeResult:
    return ProbeResult(server, 16, 64, 4, 0, "cache salt", phases, interrupted)


def usual(restored: list[int], **of_restored: float) -> ProbeResult:
    return result(
        phase("cold", PhaseKind.COLD, COLD),
        phase("restored whole", PhaseKind.RESTORED, restored, cached=of_restored.pop("cached", 980), **of_restored),  # type: ignore[arg-type]
        phase("cold again", PhaseKind.COLD, COLD),
    )


def verdict_of(probe: ProbeResult) -> tuple[Verdict, str]:
    verdict = report_on_probe(probe).verdict
    return verdict.verdict, verdict.why


def test_equal_prompts_are_harmless() -> None:
    assert verdict_of(usual(COLD))[0] is Verdict.HARMLESS


def test_half_of_the_tokens_lost_is_harm() -> None:
    verdict, why = verdict_of(usual([each // 2 for each in COLD]))

    assert verdict is Verdict.HARMFUL
    assert "acceptance length 1.76 cold" in why


def test_noise_gets_no_verdict() -> None:
    """Each prompt differs wildly, some up, some down."""
    wild = [0 if prompt % 2 else 2 * each - 8 for prompt, each in enumerate(COLD)]

    verdict, why = verdict_of(usual(wild))

    assert verdict is Verdict.CANNOT_SAY
    assert "keep" in why


def test_the_requests_of_others_forbid_a_verdict() -> None:
    verdict, why = verdict_of(usual([0] * 16, others=3))

    assert verdict is Verdict.CANNOT_SAY
    assert "3 in the phase" in why


def told(probe: ProbeResult, cached: int) -> ProbeResult:
    """The same by a server that tells each request's draft steps and restored tokens itself."""
    phases = (
        replace(
            each,
            steps_merged=0.0,
            requests=tuple(
                replace(one, told=True, cached_tokens=0 if each.kind is PhaseKind.COLD else cached)
                for one in each.requests
            ),
        )
        for each in probe.phases
    )
    return replace(probe, phases=tuple(phases))


def test_a_busy_server_that_tells_each_requests_steps_gets_its_verdict() -> None:
    assert verdict_of(told(usual(COLD, others=3), cached=980))[0] is Verdict.HARMLESS
    assert verdict_of(told(usual([0] * 16, others=3), cached=980))[0] is Verdict.HARMFUL
    assert verdict_of(told(usual(COLD, others=3), cached=0))[0] is Verdict.NOT_EXERCISED


def test_merged_chunks_forbid_a_verdict() -> None:
    verdict, why = verdict_of(usual([0] * 16, merged=120))

    assert verdict is Verdict.CANNOT_SAY
    assert "merged" in why


def test_a_few_merged_chunks_do_not() -> None:
    assert verdict_of(usual(COLD, merged=5))[0] is Verdict.HARMLESS


def test_nothing_restored_is_not_exercised() -> None:
    verdict, why = verdict_of(usual(COLD, cached=0.0))

    assert verdict is Verdict.NOT_EXERCISED
    assert "0 tokens a request were restored" in why


def test_a_drafter_that_accepts_nothing_cold_leaves_nothing_to_harm() -> None:
    nothing = [0] * 16
    probe = result(
        phase("cold", PhaseKind.COLD, nothing), phase("restored whole", PhaseKind.RESTORED, nothing, cached=980)
    )

    verdict, why = verdict_of(probe)

    assert verdict is Verdict.CANNOT_SAY
    assert "nothing is left to harm" in why


def test_cold_prompts_that_change_by_themselves_forbid_a_verdict() -> None:
    probe = result(
        phase("cold", PhaseKind.COLD, COLD),
        phase("restored whole", PhaseKind.RESTORED, [each // 2 for each in COLD], cached=980),
        phase("cold again", PhaseKind.COLD, [each // 2 for each in COLD]),
    )

    verdict, why = verdict_of(probe)

    assert verdict is Verdict.CANNOT_SAY
    assert "at the end" in why


def test_an_interrupted_probe_has_no_verdict() -> None:
    verdict, _ = verdict_of(result(phase("cold", PhaseKind.COLD, COLD), interrupted=True))

    assert verdict is Verdict.CANNOT_SAY


def test_no_drafter_is_not_exercised() -> None:
    verdict, why = verdict_of(result(server=replace(SERVER, engines=())))

    assert verdict is Verdict.NOT_EXERCISED
    assert "no drafter" in why


def test_findings_on_restored_prompts_wait_for_the_verdict() -> None:
    """Counters that lag make restored prompts look as if nothing was accepted."""
    probe = usual([0] * 16, others=3)

    report = report_on_probe(probe)

    assert report.verdict.verdict is Verdict.CANNOT_SAY
    assert "collapse-follows-cached-length" not in ids(report)
    assert "collapse-follows-cached-length" in [check.id for check in report.not_checked]


def test_counters_that_do_not_rest_forbid_a_verdict() -> None:
    probe = usual([0] * 16)
    restless = replace(probe.phases[1], settled=False)

    verdict, why = verdict_of(replace(probe, phases=(probe.phases[0], restless, probe.phases[2])))

    assert verdict is Verdict.CANNOT_SAY
    assert "did not come to rest" in why


def test_a_restart_in_a_phase_forbids_a_verdict() -> None:
    probe = usual(COLD)
    again = probe.phases[1]
    part = replace(again.recording.parts[0], restarted=True)
    again = replace(again, recording=replace(again.recording, parts=(part,)))

    verdict, why = verdict_of(replace(probe, phases=(probe.phases[0], again, probe.phases[2])))

    assert verdict is Verdict.CANNOT_SAY
    assert "restarted" in why


def test_answers_that_claim_more_than_was_counted_forbid_a_verdict() -> None:
    probe = usual(COLD)
    lying = probe.phases[1]
    requests = tuple(replace(one, accepted=one.accepted * 10) for one in lying.requests)

    verdict, why = verdict_of(
        replace(probe, phases=(probe.phases[0], replace(lying, requests=requests), probe.phases[2]))
    )

    assert verdict is Verdict.CANNOT_SAY
    assert "more tokens than the server counted" in why


def test_a_probe_that_stopped_itself_has_no_verdict() -> None:
    verdict, why = verdict_of(replace(usual(COLD), stopped="HTTP 500: out of memory"))

    assert verdict is Verdict.CANNOT_SAY
    assert "out of memory" in why


def test_failed_requests_forbid_a_verdict() -> None:
    probe = usual(COLD)
    failed = replace(probe.phases[1], failed=("HTTP 500: out of memory",) * 3)

    verdict, why = verdict_of(replace(probe, phases=(probe.phases[0], failed, probe.phases[2])))

    assert verdict is Verdict.CANNOT_SAY
    assert "out of memory" in why


@given(st.lists(st.integers(10, 60), min_size=8, max_size=40))
def test_the_same_figures_are_never_harmful(accepted: list[int]) -> None:
    cold = phase("cold", PhaseKind.COLD, accepted)
    probe = result(cold, phase("restored whole", PhaseKind.RESTORED, accepted, cached=980), cold)

    assert verdict_of(probe)[0] is Verdict.HARMLESS


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=2, max_size=30))
def test_an_interval_encloses_what_it_is_of(pairs: list[tuple[int, int]]) -> None:
    cold = phase("cold", PhaseKind.COLD, [before for before, _ in pairs])
    restored = phase("restored", PhaseKind.RESTORED, [after for _, after in pairs])

    found = compare([cold], restored)

    assert found is not None
    if found.kept is None or found.kept_low is None or found.kept_high is None:
        return
    assert found.kept_low <= found.kept + 1e-9
    assert found.kept <= found.kept_high + 1e-9


def test_a_recorded_probe_is_plain_json() -> None:
    for path in sorted(PROBES.glob("*.json")):
        assert "recorded" in json.dumps(json.loads(path.read_text())["server"]), path.stem
