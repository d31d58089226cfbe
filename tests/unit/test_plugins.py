"""The status plugin: other plugins stay as they were, the API key rules, and no engine is endangered."""

import asyncio
import math
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import cloudpickle  # type: ignore[import-untyped]
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from dspark_cli.errors import NotFit
from dspark_cli.serving.plugins import installed_plugins, plugins_with_status, status_environment
from dspark_cli.sources.vllm_install import VllmInstall, find_vllm
from dspark_cli.status_plugin.api_key import ApiKeyRule
from dspark_cli.status_plugin.asked_once import AskedOnce
from dspark_cli.status_plugin.endpoint import StatusEndpoint
from dspark_cli.status_plugin.names import PLUGIN, asked_for
from dspark_cli.status_plugin.worker_question import _answering_anywhere, ask_workers, engines_behind

OURS = [("vllm.endpoint_plugins", PLUGIN), ("vllm.general_plugins", PLUGIN)]
OTHERS = [
    ("vllm.general_plugins", "lora_resolver"),
    ("vllm.platform_plugins", "some_npu"),
    ("vllm.stat_logger_plugins", "our_logger"),
    ("vllm.io_processor_plugins", "an_io"),
    ("vllm.endpoint_plugins", "admin_routes"),
]


def test_unset_means_all_but_endpoints_and_so_it_stays() -> None:
    named = plugins_with_status(None, OURS + OTHERS)

    assert named == f"an_io,lora_resolver,our_logger,some_npu,{PLUGIN}"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", PLUGIN),
        ("lora_resolver", f"lora_resolver,{PLUGIN}"),
        ("admin_routes,lora_resolver", f"admin_routes,lora_resolver,{PLUGIN}"),
        (PLUGIN, PLUGIN),
        (f"{PLUGIN},not_installed", f"not_installed,{PLUGIN}"),
    ],
)
def test_a_users_own_list_is_kept_and_ours_added(given: str, named: str) -> None:
    assert plugins_with_status(given, OURS + OTHERS) == named


def test_an_endpoint_that_was_off_is_never_switched_on_beside_ours() -> None:
    namesakes = [("vllm.general_plugins", "two_faced"), ("vllm.endpoint_plugins", "two_faced")]

    with pytest.raises(NotFit, match="two_faced"):
        plugins_with_status(None, OURS + namesakes)

    assert plugins_with_status("two_faced", OURS + namesakes) == f"two_faced,{PLUGIN}"


def test_without_its_entry_points_the_plugin_is_said_to_be_missing() -> None:
    with pytest.raises(NotFit, match="not installed"):
        plugins_with_status(None, OTHERS)


@given(st.lists(st.tuples(st.sampled_from([group for group, _ in OTHERS]), st.from_regex(r"[a-d]", fullmatch=True))))
def test_what_was_on_stays_on_and_what_was_off_stays_off(installed: list[tuple[str, str]]) -> None:
    was_on = {name for group, name in installed if group != "vllm.endpoint_plugins"}
    endpoints = {name for group, name in installed if group == "vllm.endpoint_plugins"}

    try:
        now = set(plugins_with_status(None, OURS + installed).split(","))
    except NotFit:
        assert was_on & endpoints
    else:
        assert now == was_on | {PLUGIN}
        assert not now & endpoints


def test_this_installation_has_both_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)

    named = status_environment(find_vllm())["VLLM_PLUGINS"].split(",")

    assert set(OURS) <= set(installed_plugins())
    assert "lora_filesystem_resolver" in named  # vLLM's own
    assert named[-1] == PLUGIN


def test_a_vllm_without_endpoint_plugins_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFit, match=r"0\.20\.0 has no endpoint plugins"):
        status_environment(VllmInstall("vllm", "0.20.0", tmp_path))


@pytest.mark.parametrize(("plugins", "on"), [(None, False), ("", False), ("others", False), (f"others,{PLUGIN}", True)])
def test_the_workers_method_waits_to_be_asked_for(
    plugins: str | None, on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    if plugins is not None:
        monkeypatch.setenv("VLLM_PLUGINS", plugins)

    assert asked_for() is on


@pytest.mark.parametrize(
    ("keys", "authorization", "passes"),
    [
        ([], None, True),
        ([None], "Bearer anything", True),
        (["", None], None, True),
        (["one", "two"], "Bearer two", True),
        (["one"], "bearer one", True),
        (["one"], None, False),
        (["one"], "", False),
        (["one"], "one", False),
        (["one"], "Basic one", False),
        (["one"], "Bearer", False),
        (["one"], "Bearer one ", False),
        (["one"], "Bearer One", False),
        (["schlüssel"], "Bearer schlüssel", True),
    ],
)
def test_the_key_rule_is_vllms(keys: list[str | None], authorization: str | None, passes: bool) -> None:
    assert ApiKeyRule(keys).admits(authorization) is passes


def endpoint_client(args: Namespace) -> TestClient:
    """The endpoint in an app as vLLM's render server has it, the one without an engine."""
    app, endpoint = FastAPI(), StatusEndpoint()
    endpoint.attach_router(app)
    asyncio.run(endpoint.init_state(None, app.state, args))
    return TestClient(app)


@pytest.mark.parametrize("by_option", [True, False])
def test_the_endpoint_asks_for_the_servers_key(by_option: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "of no use" if by_option else "secret")
    client = endpoint_client(Namespace(api_key=["secret", "second"] if by_option else None))

    codes = [
        client.get("/dspark/status", headers=headers).status_code
        for headers in ({}, {"Authorization": "Bearer of no use"}, {"Authorization": "Bearer secret"})
    ]

    assert codes == [401, 401, 501]


def test_the_endpoint_only_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    client = endpoint_client(Namespace(api_key=None))

    answer = client.get("/dspark/status")

    assert (answer.status_code, answer.json()["error"]) == (501, "unsupported")
    assert {client.request(method, "/dspark/status").status_code for method in ("POST", "PUT", "DELETE")} == {405}


SINGLE = {
    "world_size": 1,
    "distributed_executor_backend": "uni",
    "nnodes": 1,
    "worker_cls": "vllm.v1.worker.gpu_worker.Worker",
    "data_parallel_size": 1,
    "data_parallel_size_local": 1,
    "data_parallel_external_lb": False,
    "data_parallel_hybrid_lb": False,
}


class OneProcessExecutor:
    """vLLM's way to a worker in the same process; what is sent was pickled, as under the other executors."""

    def __init__(self, worker: object) -> None:
        self._worker = worker

    def collective_rpc(
        self, method: Callable[..., dict[str, object]], args: tuple[object, ...]
    ) -> list[dict[str, object]]:
        return [cloudpickle.loads(cloudpickle.dumps(method))(SimpleNamespace(worker=self._worker), *args)]


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        ("dspark_cli.status_plugin.worker_counters:describe_draft_context", {"rank": 3, "policy": "off"}),
        (
            "no_such_package.module:function",
            {"rank": 3, "unsupported": "dspark-tool is not installed on the worker's host"},
        ),
        ("dspark_cli.status_plugin.worker_counters:renamed_since", {"rank": 3}),
    ],
)
def test_a_worker_answers_whatever_it_has_installed(function: str, answer: dict[str, object]) -> None:
    """Where one of several workers fails, the engine takes the others' unread replies for those to its next call."""
    engine = SimpleNamespace(model_executor=OneProcessExecutor(SimpleNamespace(rank=3)))

    (told,) = ask_workers(engine, function)

    assert told.items() >= answer.items()


def test_the_question_is_understood_where_this_package_is_missing(tmp_path: Path) -> None:
    program = """
import pickle, sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "dspark_cli": raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
print(pickle.loads(open(sys.argv[1], "rb").read())(type("Worker", (), {"rank": 5})(), "dspark_cli.x:y"))
"""
    (tmp_path / "question").write_bytes(cloudpickle.dumps(_answering_anywhere()))

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "question")], capture_output=True, text=True, timeout=60
    )

    assert done.stdout == "{'rank': 5, 'unsupported': \"dspark-tool is not installed on the worker's host\"}\n"


def test_the_engines_behind_a_balancer_outside_are_not_counted() -> None:
    inside = SimpleNamespace(**{**SINGLE, "data_parallel_size": 4, "data_parallel_size_local": 4})
    outside = SimpleNamespace(**{**SINGLE, "data_parallel_size": 4, "data_parallel_external_lb": True})

    assert (engines_behind(inside), engines_behind(outside)) == (4, 1)


def counting(answers: list[str | Exception], seconds: float = 0.0) -> tuple[AskedOnce[str], list[str | Exception]]:
    """A question with these answers one after the other, and the list of those not yet given."""
    left = list(answers)

    async def put() -> str:
        await asyncio.sleep(seconds)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AskedOnce(put, keep_s=math.inf), left


def test_a_kept_answer_is_asked_for_once() -> None:
    question, left = counting(["first", "second"])

    async def story() -> list[str]:
        return [*await asyncio.gather(question.answer(1), question.answer(1)), await question.answer(1)]

    assert asyncio.run(story()) == ["first"] * 3
    assert left == ["second"]


def test_an_answer_that_comes_late_is_there_for_the_next_who_asks() -> None:
    question, left = counting(["slow", "never needed"], seconds=0.2)

    async def story() -> str:
        with pytest.raises(TimeoutError):
            await question.answer(0.01)
        return await question.answer(5)

    assert asyncio.run(story()) == "slow"
    assert left == ["never needed"]


def test_a_failure_is_asked_again() -> None:
    question, _ = counting([ValueError("no"), "yes"])

    async def story() -> str:
        with pytest.raises(ValueError, match="no"):
            await question.answer(1)
        return await question.answer(1)

    assert asyncio.run(story()) == "yes"


def test_where_the_answer_may_change_it_is_not_kept() -> None:
    count = iter(range(10))

    async def put() -> int:
        return next(count)

    question = AskedOnce(put, keep_s=0)

    async def story() -> list[int]:
        return [await question.answer(1), await question.answer(1)]

    assert asyncio.run(story()) == [0, 1]
