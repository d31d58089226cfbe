"""A server that runs otherwise than it was asked to is told apart from one that does, and from one that cannot say."""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.draft_context.policy import Policy
from dspark_cli.errors import NotFit
from dspark_cli.facts import start_verification as names
from dspark_cli.facts.asked import Asked
from dspark_cli.facts.start_verification import Outcome, Verification
from dspark_cli.report.start_verification import show_verification
from dspark_cli.serving.asked_of import asked_of, why_no_api
from dspark_cli.serving.command import ServeCommand
from dspark_cli.serving.patched_runtime import PatchedRuntime
from dspark_cli.serving.verification import Question, judged, verify
from dspark_cli.serving.verifying_watcher import VerifyingWatcher
from dspark_cli.sources.own_server import OwnServer
from dspark_cli.sources.server_status import parse_status
from dspark_cli.sources.startup_log import StartupLog
from tests.local_server import answer, server_that
from tests.paths import FIXTURES

CONFIG: dict[str, Any] = {"method": "dflash", "model": "/drafter", "num_speculative_tokens": 7}
RUNTIME = PatchedRuntime(Policy.VALIDITY, ("skipped_drafter",), context_patches=("draft_context_v1",))
METRICS = (FIXTURES / "metrics-0.32-cpu-dflash.txt").read_bytes()
ENGINE = (
    "(EngineCore pid=7) INFO 11-30 03:40:35 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config:"
    " model='/target', speculative_config=SpeculativeConfig(method='dflash', model='/drafter', num_spec_tokens=7),"
    " max_seq_len=4096, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1,"
    " enable_prefix_caching=True, "
)


def worker(number: int, message: str, place: str = "install.py:25") -> str:
    return f"(Worker_TP{number} pid={number}) INFO 11-30 03:40:35 [{place}] {message}"


CONTEXTS = [worker(rank, "draft context: validity, on runner V1") for rank in (0, 1)]
PATCHED = [worker(rank, "patch skipped_drafter: applied", "put_on.py:64") for rank in (0, 1)]


def asked(config: Mapping[str, Any] = CONFIG, *vllm_args: str, runtime: PatchedRuntime = RUNTIME) -> Asked:
    return asked_of(ServeCommand("vllm 0.33.0", ["serve", "/target", *vllm_args], {}, dict(config), runtime))


def log_of(*lines: str) -> StartupLog:
    log = StartupLog()
    for line in lines:
        log.read(line)
    return log


def by_log(request: Asked, *lines: str) -> dict[str, tuple[Outcome, str | None]]:
    return outcomes(judged(Question(request, False, None), log_of(*lines), [], None, None))


def outcomes(found: Verification) -> dict[str, tuple[Outcome, str | None]]:
    return {each.setting: (each.outcome, each.got) for each in found.settings}


def configuration(**changed: Any) -> dict[str, Any]:
    """One engine's, of two workers, as the plugin tells it."""
    return {
        "speculative": {**CONFIG, "num_speculative_tokens_per_batch_size": None, "disable_eagle_block_drop": False},
        "drafter_max_model_len": 4096,
        "prefix_caching": True,
        "block_tokens": 128,
        "max_model_len": 4096,
        "max_batched_tokens": 8192,
        "max_sequences": 64,
        "workers": 2,
        "executor": "mp",
        "model_runner": "V1",
        "patches": [],
        **changed,
    }


def told_worker(rank: int, **changed: Any) -> dict[str, Any]:
    counted = dict.fromkeys(("admissions", "restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens"), 0)
    state = {"policy": "validity", "active": False, "inactive_reason": None, "model_runner": "V1", "draft_tokens": 7}
    patches = ["draft_context_v1", "skipped_drafter"]
    return {
        "rank": rank,
        "engine": 0,
        **counted,
        **state,
        "patches": patches,
        "draft_backends": ["CPU_ATTN"],
        **changed,
    }


def status(engines: list[dict[str, Any]], workers: list[dict[str, Any]]) -> bytes:
    told = json.loads((FIXTURES / "status" / "two-ranks.json").read_text())
    context = {"policy": "validity", "workers": workers, "acceptance": {"unsupported": "not counted"}}
    return json.dumps({**told, "patches": [], "draft_context": context, "configurations": engines}).encode()


def verified_by(body: bytes, request: Asked, key: str | None = None, *lines: str) -> Verification:
    """What comes of asking a server whose status is `body`."""

    def respond(handler: Any) -> None:
        if handler.path != "/dspark/status":
            answer(handler, 404, b"")
        elif key is not None and handler.headers.get("Authorization") != f"Bearer {key}":
            answer(handler, 401, b"{}")
        else:
            answer(handler, 200, body)

    with server_that(respond) as url:
        return verify(Question(request, True, key), OwnServer(url), log_of(*lines))


WORKERS = [told_worker(0), told_worker(1)]


def test_a_status_that_is_as_asked_confirms_everything() -> None:
    request = asked(CONFIG, "--max-model-len", "4096", "--max-num-seqs=64", "--block_size", "128")

    found = verified_by(status([configuration()], WORKERS), request, "the-key")

    assert found.differing == found.not_confirmed == ()
    assert {names.METHOD, names.TOKENS, names.DRAFT_CONTEXT, names.PATCHES, names.DRAFT_LAYERS} <= set(outcomes(found))


@pytest.mark.parametrize(("layers", "outcome"), [(2, Outcome.SAME), (3, Outcome.DIFFERS), (None, Outcome.SAME)])
def test_the_groups_hold_as_many_draft_layers_as_the_drafter_has(layers: int | None, outcome: Outcome) -> None:
    command = ServeCommand("vllm 0.33.0", ["serve", "/target"], {}, dict(CONFIG), RUNTIME, draft_layers=layers)

    found = verified_by(status([configuration()], WORKERS), asked_of(command))

    assert outcomes(found)[names.DRAFT_LAYERS][0] is outcome


SCHEDULED = {**CONFIG, "num_speculative_tokens_per_batch_size": [[1, 16, 6], [17, 64, 3]]}


def speculative(**changed: Any) -> dict[str, Any]:
    return configuration(speculative={**configuration()["speculative"], **changed})


@pytest.mark.parametrize(
    ("engines", "workers", "config", "setting", "got"),
    [
        ([configuration(prefix_caching=False)], WORKERS, CONFIG, names.PREFIX_CACHING, "off"),
        ([speculative(num_speculative_tokens=5)], WORKERS, CONFIG, names.TOKENS, "engine 0: 5"),
        ([configuration()], [told_worker(0), told_worker(1, draft_tokens=5)], CONFIG, names.TOKENS, "rank 1: 5"),
        ([configuration()], WORKERS, SCHEDULED, names.SCHEDULE, "none"),
        ([configuration(speculative={})], WORKERS, CONFIG, names.METHOD, "none"),
        ([speculative(method="eagle")], WORKERS, CONFIG, names.METHOD, "eagle"),
        ([configuration(drafter_max_model_len=2048)], WORKERS, CONFIG, names.DRAFTER_LEN, "2,048"),
        ([configuration()], WORKERS, {**CONFIG, "attention_backend": "FLASH_ATTN"}, names.DRAFT_BACKEND, "CPU_ATTN"),
        (
            [configuration()],
            WORKERS,
            {**CONFIG, "disable_eagle_block_drop": True},
            "disable_eagle_block_drop",
            "off",
        ),
        (
            [configuration()],
            [
                told_worker(0),
                told_worker(1, patches=["draft_context_v1"], failed_patches={"skipped_drafter": "changed"}),
            ],
            CONFIG,
            names.PATCHES,
            "engine 0 rank 1: without skipped_drafter (changed)",
        ),
        (
            [configuration()],
            [told_worker(0), told_worker(1, patches=["skipped_drafter"])],
            CONFIG,
            names.PATCHES,
            "without draft_context_v1",
        ),
        (
            [configuration()],
            [told_worker(0), told_worker(1, policy="off", inactive_reason="not asked for", patches=[])],
            CONFIG,
            names.DRAFT_CONTEXT,
            "engine 0 rank 1: not at work (not asked for)",
        ),
        (
            [configuration()],
            [told_worker(0, policy="restored")],
            CONFIG,
            names.DRAFT_CONTEXT,
            "engine 0 rank 0: restored",
        ),
        ([configuration()], [told_worker(0)], CONFIG, names.DRAFT_CONTEXT, "1 of 2 workers of engine 0: no answer"),
        (
            [configuration()],
            [told_worker(0), told_worker(1, policy="off", inactive_reason="not installed there", model_runner=None)],
            CONFIG,
            names.PATCHES,
            "engine 0 rank 1: unknown (not installed there)",
        ),
        (
            [configuration(), configuration()],
            [
                *WORKERS,
                told_worker(0, engine=1),
                told_worker(1, engine=1, inactive_reason="the layout is not understood"),
            ],
            CONFIG,
            names.DRAFT_CONTEXT,
            "engine 1 rank 1: not at work (the layout",
        ),
    ],
)
def test_what_differs_is_said_with_who_has_what(
    engines: list[dict[str, Any]],
    workers: list[dict[str, Any]],
    config: dict[str, Any],
    setting: str,
    got: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = verified_by(status(engines, workers), asked(config))
    show_verification(found)

    assert setting in {each.setting for each in found.differing}
    assert got in str(outcomes(found)[setting][1])
    shown = capsys.readouterr().err
    assert f"warning: {setting}: asked for" in shown
    assert "next: " in shown


LEFT_OUT = {"model_runner": "V2", "inactive_reason": "draft_context_v2 was left out", "patches": []}


@pytest.mark.parametrize(
    ("engines", "workers", "config", "vllm_args"),
    [
        ([configuration(drafter_max_model_len=8192)], WORKERS, CONFIG, []),  # longer than the target
        ([configuration()], WORKERS, {**CONFIG, "attention_backend": "cpu_attn"}, []),
        ([configuration()], WORKERS, {**CONFIG, "attention_backend": "auto"}, []),
        ([configuration(max_model_len=2048)], WORKERS, CONFIG, ["--max-model-len", "auto"]),
        ([configuration(max_model_len=2048)], WORKERS, CONFIG, ["--max-model-len", "2K"]),
        ([configuration(max_model_len=2000)], WORKERS, CONFIG, ["--max-model-len", "2k"]),
        ([configuration(prefix_caching=False)], WORKERS, CONFIG, ["--no-enable-prefix-caching"]),
        ([configuration(max_sequences=8)], WORKERS, CONFIG, ["--max-num-seqs", "64", "--max-num-seqs", "8"]),
        ([configuration(workers=1)], [told_worker(0, active=True)], CONFIG, []),
        ([speculative(num_speculative_tokens_per_batch_size=[[1, 16, 6], [17, 64, 3]])], WORKERS, SCHEDULED, []),
        (
            [configuration(speculative={**CONFIG, "model": "/cache/of/it"})],
            WORKERS,
            {**CONFIG, "model": "s3://b/d"},
            [],
        ),
        ([configuration(patches=["unasked"])], [*WORKERS], CONFIG, ["--port", "8000"]),
        ([configuration(model_runner="V2")], [told_worker(rank, **LEFT_OUT) for rank in (0, 1)], CONFIG, []),
    ],
)
def test_near_misses_are_no_difference(
    engines: list[dict[str, Any]], workers: list[dict[str, Any]], config: dict[str, Any], vllm_args: list[str]
) -> None:
    assert verified_by(status(engines, workers), asked(config, *vllm_args)).differing == ()


def test_stock_vllm_as_asked_is_no_difference() -> None:
    stock = [told_worker(rank, policy="off", inactive_reason="not asked for", patches=[]) for rank in (0, 1)]

    found = verified_by(status([configuration()], stock), asked(runtime=PatchedRuntime()))

    assert found.differing == ()
    assert outcomes(found)[names.DRAFT_CONTEXT] == (Outcome.SAME, "off")


def test_an_option_in_a_configuration_file_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("enable-prefix-caching: false\nmax-num-seqs: 32\n")

    found = verified_by(
        status([configuration(prefix_caching=False)], WORKERS), asked(CONFIG, "--config", str(tmp_path / "c.yaml"))
    )

    assert [(each.setting, each.asked, each.got) for each in found.differing] == [(names.SEQUENCES, "32", "64")]


def test_the_metrics_say_less_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with server_that(lambda handler: answer(handler, 200, METRICS)) as url:
        found = verify(Question(asked(), False, None), OwnServer(url), log_of())
    show_verification(found)

    assert outcomes(found)[names.TOKENS] == (Outcome.SAME, "7")
    assert outcomes(found)[names.PREFIX_CACHING] == (Outcome.SAME, "on")
    assert {names.METHOD, names.DRAFT_CONTEXT, names.PATCHES} <= {each.setting for each in found.not_confirmed}
    assert "not confirmed: method, drafter, draft layers in the KV cache" in (shown := capsys.readouterr().err)
    assert "(start with --status)" in shown


def test_the_log_alone_confirms_what_every_process_says() -> None:
    found = by_log(asked(), ENGINE, *CONTEXTS, *PATCHED)

    assert {setting for setting, (outcome, _) in found.items() if outcome is Outcome.SAME} == {
        names.METHOD,
        names.DRAFTER,
        names.TOKENS,
        names.PREFIX_CACHING,
        names.DRAFT_CONTEXT,
        names.PATCHES,
    }
    assert not [setting for setting, (outcome, _) in found.items() if outcome is Outcome.DIFFERS]


def test_a_worker_that_says_nothing_of_its_context_has_none() -> None:
    found = by_log(asked(), ENGINE, CONTEXTS[0], *PATCHED)

    assert found[names.DRAFT_CONTEXT] == (
        Outcome.DIFFERS,
        "(Worker_TP0 pid=0): validity; 1 of 2 workers: not on",
    )


@pytest.mark.parametrize(
    ("lines", "setting", "got"),
    [
        (
            [worker(1, "patch skipped_drafter: not applied: ImportError: x", "put_on.py:67")],
            names.PATCHES,
            "ImportError",
        ),
        (["(Worker_TP1 pid=1) ERROR Failed to load plugin dspark_patches"], names.PATCHES, "dspark_patches"),
        ([worker(1, "draft context: validity (no drafter)")], names.DRAFT_CONTEXT, "not at work (no drafter)"),
        (["(EngineCore pid=7) INFO Disabling prefix caching: model has non-causal"], names.PREFIX_CACHING, "off"),
    ],
)
def test_the_log_shows_what_went_wrong(lines: list[str], setting: str, got: str) -> None:
    outcome, what = by_log(asked(), ENGINE, *CONTEXTS, *PATCHED, *lines)[setting]

    assert outcome is Outcome.DIFFERS
    assert got in str(what)


def test_a_schedule_that_vllm_drops_is_missed_in_the_log() -> None:
    dropped = (
        "WARNING Disabling num_speculative_tokens_per_batch_size and falling back to static num_speculative_tokens=7."
    )

    assert by_log(asked(SCHEDULED), ENGINE)[names.SCHEDULE][0] is Outcome.NOT_CONFIRMED
    assert by_log(asked(SCHEDULED), ENGINE, dropped)[names.SCHEDULE] == (Outcome.DIFFERS, "none")


def test_prefix_caching_that_the_engine_turned_off_is_not_on_because_the_front_end_says_so() -> None:
    off = "(EngineCore pid=7) INFO Disabling prefix caching: model has non-causal attention layers."

    with server_that(lambda handler: answer(handler, 200, METRICS)) as url:
        found = verify(Question(asked(), False, None), OwnServer(url), log_of(ENGINE, off))

    assert outcomes(found)[names.PREFIX_CACHING][0] is Outcome.DIFFERS


@pytest.mark.parametrize(
    "spread", [["--distributed-executor-backend", "ray"], ["--nnodes", "2"], ["--data-parallel-rank=0"]]
)
def test_workers_elsewhere_are_not_missed_in_this_log_and_not_confirmed_by_it(spread: list[str]) -> None:
    found = by_log(asked(CONFIG, *spread), ENGINE, CONTEXTS[0], PATCHED[0])

    assert found[names.DRAFT_CONTEXT][0] is found[names.PATCHES][0] is Outcome.NOT_CONFIRMED


def test_rays_colours_and_summaries_are_read() -> None:
    ray, place = "\x1b[36m(RayWorkerProc pid=260)\x1b[0m (MainProcess pid=260)", "INFO 11-30 03:27:06 [install.py:25]"
    line = f"{ray} {place} draft context: validity (no drafter)\x1b[32m [repeated 2x across cluster]\x1b[0m"

    found = by_log(asked(CONFIG, "--distributed-executor-backend", "ray"), ENGINE, line)

    assert found[names.DRAFT_CONTEXT] == (Outcome.DIFFERS, "not at work (no drafter)")


@pytest.mark.parametrize(
    "line", ["", "\x1b[", "(" * 5000, ENGINE.replace("7)", "9" * 5000 + ")"), "max_seq_len=" + "9" * 50_000]
)
def test_hostile_lines_are_read_in_time(line: str) -> None:
    began = time.monotonic()

    log_of(
        line,
        f"(pid={'x' * 60_000}",
        "(" + "pid=" * 16_000,
        f"{'(pid=1) ' * 8000}x",
        ENGINE[50:] * 150,
        "(pid=1) " * 8000,
    )

    assert time.monotonic() - began < 5


def test_a_key_that_is_refused_is_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark_cli.serving.verification.STATUS_WITHIN_S", 0)
    with server_that(lambda handler: answer(handler, 401, b"{}")) as url:
        found = verify(Question(asked(), True, "sk-very-secret"), OwnServer(url), log_of())
    show_verification(found)

    assert "wants the server's API key" in str(found.unasked)
    assert "sk-very-secret" not in capsys.readouterr().err + str(found)


def test_a_busy_engine_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.serving.verification.ASK_AGAIN_S", 0.01)
    answers = [(504, b'{"error": "timeout"}'), (503, b"{}"), (200, status([configuration()], WORKERS))]

    def respond(handler: Any) -> None:
        answer(handler, *(answers.pop(0) if handler.path == "/dspark/status" else (404, b"")))

    with server_that(respond) as url:
        found = verify(Question(asked(), True, None), OwnServer(url), log_of())

    assert found.differing == found.not_confirmed == ()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--headless"], "--headless"),
        (["--node-rank", "1"], "--node-rank 1"),
        (["--node-rank", "0", "--nnodes", "2"], None),
        ([], None),
    ],
)
def test_a_node_without_an_api_is_known_by_its_arguments(argv: list[str], why: str | None) -> None:
    said = why_no_api(argv)

    assert said is None if why is None else why in str(said)


class Silent:
    def on_line(self, line: str) -> None:
        pass

    def on_signal(self, number: int) -> None:
        pass


def watcher_that(tells: Callable[[Verification], None], no_api: str | None = None) -> VerifyingWatcher:
    return VerifyingWatcher(Silent(), Question(asked(), True, None), None, no_api, tells)


def test_a_node_without_an_api_tells_what_its_log_shows_once() -> None:
    told: list[Verification] = []
    watcher = watcher_that(told.append, "this node has no API (--headless)")

    for line in [
        CONTEXTS[0],
        worker(1, "patch skipped_drafter: not applied: x", "put_on.py:67"),
        *PATCHED[:1],
        CONTEXTS[1],
    ]:
        watcher.on_line(line)

    assert [[each.setting for each in found.settings] for found in told] == [[names.PATCHES]]
    result = watcher.result()
    assert result is not None
    assert result.unasked == "this node has no API (--headless)"


def test_the_servers_output_is_read_on_while_it_is_asked() -> None:
    asked_now, go_on = threading.Event(), threading.Event()

    def respond(handler: Any) -> None:
        asked_now.set()
        go_on.wait(10)
        answer(handler, 404, b"")

    told: list[Verification] = []
    with server_that(respond) as url:
        watcher = watcher_that(told.append)
        watcher.on_line(f"INFO Starting vLLM server on {url}")
        watcher.on_line("INFO:     Application startup complete.")
        assert asked_now.wait(10)
        watcher.on_line("more output")  # not held up
        assert told == []
        go_on.set()
        deadline = time.monotonic() + 10
        while not told and time.monotonic() < deadline:
            time.sleep(0.02)

    assert watcher.result() is told[0]


def test_a_server_that_ends_before_it_is_ready_has_no_verification() -> None:
    watcher = watcher_that(lambda found: None)
    watcher.on_line(ENGINE)

    assert watcher.result() is None


def test_a_log_that_does_not_say_where_it_listens_leaves_the_log_to_judge_by() -> None:
    watcher = watcher_that(lambda found: None)
    watcher.on_line(ENGINE)
    watcher.on_line("INFO:     Application startup complete.")

    result = watcher.result()
    assert result is not None
    assert (result.where, result.unasked) == (None, "its log does not say where it listens")
    assert outcomes(result)[names.METHOD][0] is Outcome.SAME


def test_nobody_there_is_a_reason_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_cli.serving.verification.STATUS_WITHIN_S", 0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        found = verify(Question(asked(), True, None), OwnServer(url), log_of())

    assert "no server answers" in str(found.unasked)
    assert len(found.not_confirmed) == len(found.settings)


@pytest.mark.parametrize(
    "changed",
    [
        {"block_tokens": -1},
        {"workers": 2**70},
        {"speculative": {"model": "\x1b[2J"}},
        {"speculative": {"k" * 2000: 1}},
        {"speculative": {"schedule": [[-1, 2, 3]]}},
        {"patches": ["p" * 5000]},
        {"prefix_caching": "perhaps"},
    ],
)
def test_a_configuration_that_no_engine_can_have_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(NotFit, match="no status that dspark-tool"):
        parse_status(status([configuration(**changed)], WORKERS), "here")


def test_a_failed_patch_with_hostile_words_is_refused() -> None:
    worker = told_worker(0, failed_patches={"skipped_drafter": "\x1b]0;title\x07"})

    with pytest.raises(NotFit, match="no status that dspark-tool"):
        parse_status(status([configuration()], [worker]), "here")


def test_the_log_of_a_real_start_is_read() -> None:
    log = log_of(*(FIXTURES / "logs" / "0.33-gpu-starts-and-stops.log").read_text().splitlines())

    (engine,) = log.engines.values()
    assert (engine.method, engine.tokens, engine.prefix_caching) == ("dflash", 7, True)
    assert log.workers == log.cores == 1
