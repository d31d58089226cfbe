"""Ask all engines behind the server for what they count: the workers' draft context, the schedulers' acceptance.

How they are asked without harm to the engine is in `worker_question`.

Counters change, so an answer serves only those who ask within the same moment. However often clients ask, the engine is
interrupted once in that time, for one reply of its workers between two steps.
"""

import asyncio
from typing import Any

from dspark_cli.status_plugin.asked_once import AskedOnce
from dspark_cli.status_plugin.names import ENGINE_METHOD, WORKERS_METHOD
from dspark_cli.status_plugin.worker_counters import described_or_silent
from dspark_cli.status_plugin.worker_question import DESCRIBE_CONTEXT, engines_behind, server_refusal

MOMENT_S = 0.5
Counters = dict[str, Any]
"""`policy`, `workers`, `acceptance` and `failed_patches` of the status, and its `configurations`; or `unsupported`, a
reason."""


def counters_question(engine_client: Any) -> AskedOnce[Counters]:
    """What all engines behind `engine_client` have counted since their start."""

    async def put() -> Counters:
        refusal = server_refusal(engine_client)
        if refusal is not None:
            return {"unsupported": refusal}
        workers, told = await asyncio.gather(_workers(engine_client), _of_all_engines(engine_client, ENGINE_METHOD))
        policies = sorted({str(worker["policy"]) for worker in workers})
        failed = {name: why for each in [*told, *workers] for name, why in each.get("failed_patches", {}).items()}
        acceptance = _acceptance(engine_client, [each["acceptance"] for each in told])
        return {
            "policy": ", ".join(policies),
            "workers": workers,
            "acceptance": acceptance,
            "failed_patches": failed,
            "configurations": [each["configuration"] for each in told],
        }

    return AskedOnce(put, MOMENT_S)


async def _workers(engine_client: Any) -> list[dict[str, Any]]:
    answers = await _of_all_engines(engine_client, WORKERS_METHOD, DESCRIBE_CONTEXT)
    return [
        {**described_or_silent(worker), "engine": engine}
        for engine, workers in enumerate(answers)
        for worker in workers
    ]


async def _of_all_engines(engine_client: Any, method: str, *args: Any) -> list[Any]:
    """What a method of the engine core says; before 0.32, of the first engine."""
    core = engine_client.engine_core
    every = getattr(core, "call_utility_all_async", None)
    return list(await every(method, *args)) if every else [await core.call_utility_async(method, *args)]


def _acceptance(engine_client: Any, told: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all engines together, as vLLM's /metrics are when summed; or `unsupported`, a reason."""
    engines = engines_behind(engine_client.vllm_config.parallel_config)
    if len(told) < engines:
        return {"unsupported": f"{engines} engines are behind this server, and this vLLM passes on the answer of one"}
    return together(told)


def together(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over what `describe_acceptance` says of each engine; unsupported where one of them is."""
    reasons = sorted({str(answer["unsupported"]) for answer in answers if "unsupported" in answer})
    if reasons:
        return {"unsupported": "; ".join(reasons)}
    total: dict[str, Any] = answers[0]
    for answer in answers[1:]:
        buckets = [_sum(*pair) for pair in zip(total["buckets"], answer["buckets"], strict=True)]
        total = {**total, "buckets": buckets}
    return total


def _sum(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    per_position = zip(a["accepted_per_position"], b["accepted_per_position"], strict=True)
    sums = {name: a[name] + b[name] for name in ("draft_steps", "draft_tokens", "accepted_tokens")}
    return {**a, **sums, "accepted_per_position": [one + other for one, other in per_position]}
