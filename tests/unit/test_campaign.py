"""A tune from its first server to its last, over cheap servers: what is kept, what is left, and after a kill -9."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dspark_cli.facts.tuning import Candidate
from dspark_cli.sources.tuning_file import open_tuning_file
from tests.cheap_tune import QUESTION, CheapLauncher, Told, campaign, plan_of
from tests.paths import TESTS

GONE_WITHIN_S = 30.0


def test_every_candidate_that_is_needed_is_measured_once_and_kept(tmp_path: Path) -> None:
    launcher, told = CheapLauncher(), Told()
    with open_tuning_file(tmp_path / "results.jsonl", QUESTION) as file:
        run = campaign(file, plan_of(control=True), launcher, told)
        run.run()
        held = dict(file.measurements)

    assert [each.tokens for each in launcher.started] == [3, 0, 1, 2, 0]
    assert set(held) == {
        *((Candidate(tokens), at, False) for tokens in (0, 1, 2, 3) for at in (1, 2)),
        *((Candidate(0), at, True) for at in (1, 2)),
    }
    assert not run.failed
    assert run.added == 10
    for (candidate, _, _), each in held.items():
        assert len(each.requests) == 10
        assert all(request.output_tokens == 16 for request in each.requests)
        assert each.prefix_hit_rate == 0
        assert each.other_requests == 0
        assert len(each.counted.accepted_at) == candidate.tokens
        assert (each.draft_steps > 0) is candidate.speculates


def test_a_second_run_measures_nothing_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with open_tuning_file(path, QUESTION) as file:
        campaign(file, plan_of((1,)), CheapLauncher(), Told()).run()
    before = path.read_bytes()

    launcher = CheapLauncher()
    with open_tuning_file(path, QUESTION) as file:
        again = campaign(file, plan_of((1,)), launcher, Told())
        again.run()

    assert launcher.started == []
    assert (again.added, again.reused) == (0, 4)
    assert path.read_bytes() == before


def test_a_candidate_whose_server_dies_is_recorded_and_the_others_are_measured(tmp_path: Path) -> None:
    told = Told()
    with open_tuning_file(tmp_path / "results.jsonl", QUESTION) as file:
        run = campaign(file, plan_of((1, 2, 3)), CheapLauncher(dying=frozenset({3})), told)
        run.run()
        measured = {key[0].tokens for key in file.measurements}

    assert measured == {0, 1, 2}
    assert list(run.failed) == [Candidate(3)]
    assert "no room for so many tokens" in run.failed[Candidate(3)].cause
    assert '"failed"' in (tmp_path / "results.jsonl").read_text()


def test_all_failing_ends_without_a_measurement(tmp_path: Path) -> None:
    with open_tuning_file(tmp_path / "results.jsonl", QUESTION) as file:
        run = campaign(file, plan_of((1, 2)), CheapLauncher(dying=frozenset({0, 1, 2})), Told())
        run.run()

        assert not file.measurements
    assert {each.tokens for each in run.failed} == {0, 1, 2}


def test_no_server_starts_once_the_time_is_over(tmp_path: Path) -> None:
    launcher = CheapLauncher()
    with open_tuning_file(tmp_path / "results.jsonl", QUESTION) as file:
        run = campaign(file, plan_of(), launcher, Told(), most_s=0.0)
        run.run()

    assert launcher.started == []
    assert run.stopped is not None


@pytest.mark.parametrize(
    ("stage", "occurrence", "delay_s"),
    [
        ("starting 2", 1, 0.0),
        ("starting 0", 1, 0.02),
        ("starting 0", 1, 0.2),
        ("ready", 2, 0.0),
        ("warming up", 3, 0.0),
        ("measuring", 4, 0.05),
        ("measured 0", 1, 0.0),
    ],
)
def test_a_kill_at_any_stage_leaves_no_process_and_loses_no_result(
    tmp_path: Path, stage: str, occurrence: int, delay_s: float
) -> None:
    path = tmp_path / "results.jsonl"
    finished = run_and_kill(path, stage, occurrence, delay_s)

    assert_nothing_runs_for(str(tmp_path))
    with open_tuning_file(path, QUESTION) as file:
        kept = [key[0].tokens for key in file.measurements]
        campaign(file, plan_of((1, 2)), CheapLauncher(), Told()).run()
        complete = {key[0].tokens for key in file.measurements}

    assert kept[: len(finished)] == finished
    assert complete == {0, 1, 2}
    lines = [line for line in path.read_text().splitlines() if '"measured"' in line]
    assert len(lines) == 6


def test_an_interrupt_ends_the_server_and_keeps_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    finished = run_and_kill(path, "measuring", 3, 0.0, signal.SIGINT)

    assert_nothing_runs_for(str(tmp_path))
    with open_tuning_file(path, QUESTION) as file:
        assert [key[0].tokens for key in file.measurements][: len(finished)] == finished


def run_and_kill(path: Path, stage: str, occurrence: int, delay_s: float, by: int = signal.SIGKILL) -> list[int]:
    """End a tune a moment after it tells of `stage` for the `occurrence`-th time; the candidates that it had measured,
    one for each load."""
    finished: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cheap_tune", str(path)], stdout=subprocess.PIPE, text=True, cwd=TESTS.parent
    ) as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            if line.startswith("measured"):
                finished.append(int(line.split()[1]))
            occurrence -= line.strip() == stage
            if not occurrence:
                break
        time.sleep(delay_s)
        tool.send_signal(by)
    return finished


def assert_nothing_runs_for(name: str) -> None:
    """No process that has `name` on its command line, whichever session it is in."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while found := [each for each in psutil.process_iter() if names(each, name)]:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def names(process: psutil.Process, text: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(text in word for word in process.cmdline())
    return False


def test_once_the_smallest_number_dies_too_the_others_are_not_tried(tmp_path: Path) -> None:
    launcher = CheapLauncher(dying=frozenset(range(1, 8)))
    with open_tuning_file(tmp_path / "results.jsonl", QUESTION) as file:
        run = campaign(file, plan_of(tuple(range(1, 8))), launcher, Told())
        run.run()

    assert [each.tokens for each in launcher.started] == [7, 1, 0]
    assert set(run.failed) == {Candidate(7), Candidate(1)}
