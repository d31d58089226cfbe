"""The stress test itself: a wrong kernel is found, made small, and reproduced by the case that is printed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from dspark_kernels.draft_groups import DraftBlockTables, DraftGroup
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import BadInput, ExitCode
from dspark_cli.stress.case import Mapping, Shift, StressCase, parse_case
from dspark_cli.stress.device import Device
from dspark_cli.stress.lane_orders import explore_orderings
from dspark_cli.stress.sanitizer import _verdict
from dspark_cli.stress.subjects import KERNELS, Prepare, Ready, prepare_context_parallel, prepare_shift
from dspark_cli.stress.sweep import stress, sweep_cases
from dspark_cli.stress.verdict import FailingCase, KernelVerdict, SanitizerVerdict, StressReport

SEED = 11
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = [StressCase(3, 40, shift, chunk=32, gap=gap) for shift in Shift for gap in (0, 3)]
GPU = Device("cuda", "some GPU", "9.0", "580", "2.11", "3.6")


def corrupting(prepare: Prepare, when: Callable[[StressCase], bool]) -> Prepare:
    """`prepare`'s kernel, with one entry of its output overwritten where `when` says so."""

    def corrupted(case: StressCase, seed: int, device: str) -> Ready:
        ready = prepare(case, seed, device)

        def launch() -> None:
            ready.launch()
            if when(case):
                ready.outputs[0].view(-1)[-1] += 1

        return replace(ready, launch=launch)

    return corrupted


@pytest.mark.parametrize("name", KERNELS)
def test_a_sound_kernel_is_never_wrong(name: str) -> None:
    verdict = stress(name, KERNELS[name], SMALL, iterations=2, seed=SEED, device=DEVICE)

    assert (verdict.cases, verdict.runs, verdict.wrong_runs) == (len(SMALL), 2 * len(SMALL), 0)
    assert verdict.smallest is None


@pytest.mark.parametrize("name", KERNELS)
def test_one_wrong_entry_is_found_in_every_kernels_output(name: str) -> None:
    wrong = corrupting(KERNELS[name], lambda case: case.shift is Shift.SEVEN)

    verdict = stress(name, wrong, SMALL, iterations=3, seed=SEED, device=DEVICE, shrink=False)

    assert verdict.wrong_runs == 3 * 2
    assert [parse_case(failing.case).shift for failing in verdict.failing] == [Shift.SEVEN] * 2


def test_hiding_a_ranks_own_blocks_instead_of_virtual_ones_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ranks(groups: list[DraftGroup], tables: list[torch.Tensor]) -> DraftBlockTables:
        return DraftBlockTables([DraftGroup(group.block_size) for group in groups], tables)

    monkeypatch.setattr("dspark_cli.stress.subjects.DraftBlockTables", without_ranks)

    verdict = stress(
        "context-parallel", prepare_context_parallel, SMALL, iterations=1, seed=SEED, device=DEVICE, shrink=False
    )

    assert verdict.wrong_runs > len(SMALL) / 2


def test_a_write_into_the_gap_between_rows_is_found() -> None:
    wrong = corrupting(prepare_shift, lambda case: case.gap > 0)

    verdict = stress("shift", wrong, SMALL, iterations=1, seed=SEED, device=DEVICE, shrink=False)

    assert all(parse_case(failing.case).gap == 3 for failing in verdict.failing)
    assert len(verdict.failing) == len(Shift)


def test_the_smallest_failing_case_is_made_smaller_and_fails_again_when_run_alone() -> None:
    wrong = corrupting(prepare_shift, lambda case: case.blocks >= 10 and case.rows >= 1)
    found = stress("shift", wrong, [StressCase(64, 160, Shift.RANDOM)], iterations=1, seed=SEED, device=DEVICE)

    assert found.smallest is not None
    again = parse_case(found.smallest)
    alone = stress("shift", wrong, [again], iterations=1, seed=SEED, device=DEVICE, shrink=False)
    assert (again.rows, again.blocks) == (1, 10)
    assert alone.wrong_runs == 1


@given(
    st.builds(
        StressCase,
        rows=st.integers(1, 512),
        blocks=st.integers(1, 65536),
        shift=st.sampled_from(Shift),
        warps=st.sampled_from([1, 4, 32]),
        chunk=st.sampled_from([128, 8192]),
        prefetch=st.booleans(),
        mapping=st.sampled_from(Mapping),
        gap=st.integers(0, 64),
        graph=st.booleans(),
    )
)
def test_a_printed_case_reads_back_as_itself(case: StressCase) -> None:
    assert parse_case(str(case)) == case


@pytest.mark.parametrize(
    "text",
    ["", "rows=8", "rows=0,blocks=8,shift=7", "rows=8,blocks=8,shift=9", "rows=8,blocks=8,shift=7,extra=1", "a,b"],
)
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--case"):
        parse_case(text)


def test_the_large_sweep_covers_every_width_shift_mapping_and_graph() -> None:
    cases = sweep_cases(large=True, graphs=True)

    assert {1, 65536} <= {case.blocks for case in cases}
    assert {case.shift for case in cases} == set(Shift)
    assert {case.mapping for case in cases} == set(Mapping)
    assert {case.graph for case in cases} == {True, False}
    assert any(case.gap for case in cases)


def test_the_lane_model_clears_the_shipped_orderings_and_condemns_the_unguarded_one() -> None:
    verdicts = explore_orderings(SEED)

    assert [verdict.wrong == 0 for verdict in verdicts] == [verdict.guarded for verdict in verdicts]
    assert verdicts[-1].counter_example


def verdict(wrong: int) -> KernelVerdict:
    failing = [FailingCase("rows=1,blocks=2,shift=1", wrong)] if wrong else []
    return KernelVerdict("shift", 1, 10, wrong, failing, failing[0].case if failing else None)


@pytest.mark.parametrize(
    ("wrong", "control", "sanitizers", "code"),
    [
        (0, 5, [], ExitCode.FINE),
        (1, 5, [], ExitCode.FINDINGS),
        (0, 0, [], ExitCode.CANNOT_SAY),
        (1, 0, [], ExitCode.FINDINGS),
        (0, None, [], ExitCode.FINE),
        (0, 5, [SanitizerVerdict("memcheck", 0, "")], ExitCode.FINE),
        (0, 5, [SanitizerVerdict("memcheck", 2, "")], ExitCode.FINDINGS),
        (0, 5, [SanitizerVerdict("memcheck", None, "")], ExitCode.CANNOT_SAY),
    ],
)
def test_the_exit_code_says_what_was_found(
    wrong: int, control: int | None, sanitizers: list[SanitizerVerdict], code: ExitCode
) -> None:
    of_control = None if control is None else verdict(control)

    report = StressReport(GPU, SEED, 10, [verdict(wrong)], of_control, [], sanitizers)

    assert report.exit_code is code


@pytest.mark.parametrize(
    ("output", "exit_code", "errors"),
    [
        ("========= COMPUTE-SANITIZER\n{}\n========= ERROR SUMMARY: 0 errors\n", 0, 0),
        ("========= Invalid __global__ read\n========= ERROR SUMMARY: 3 errors\n", 97, 3),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0, 0),
        ("========= Error: Device not supported\n", 1, None),
        ("========= ERROR SUMMARY: 0 errors\n", 1, None),
    ],
)
def test_a_sanitizers_summary_is_read(output: str, exit_code: int, errors: int | None) -> None:
    assert _verdict("memcheck", exit_code, output).errors == errors
