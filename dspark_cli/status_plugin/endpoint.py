"""An endpoint plugin of vLLM: GET /dspark/status and /dspark/metrics, read-only, on the API server's own port and under
its own API key."""

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from dspark_cli import __version__
from dspark_cli.status_plugin.api_key import ApiKeyRule, rule_of_server
from dspark_cli.status_plugin.asked_once import Answer, AskedOnce
from dspark_cli.status_plugin.counters_question import Counters, counters_question
from dspark_cli.status_plugin.names import METRICS_ROUTE, PLUGIN, ROUTE
from dspark_cli.status_plugin.patches_here import PatchStatus, patches_question, with_failures
from dspark_cli.status_plugin.worker_question import engines_behind, question_to, server_refusal

ANSWER_WITHIN_S = 8.0
"""Less than clients wait. A busy engine on a CPU may take longer for a step; the next request then has the answer."""


class StatusEndpoint:
    """See vllm.plugins.endpoint_plugins.interface.EndpointPlugin for the contract."""

    name = PLUGIN
    required_tasks = None

    def __init__(self) -> None:
        self._rule: ApiKeyRule | None = None
        self._engine: _Engine | None = None

    def attach_router(self, app: FastAPI) -> None:
        app.add_api_route(ROUTE, self.status, methods=["GET"], include_in_schema=False)
        app.add_api_route(METRICS_ROUTE, self.metrics, methods=["GET"], include_in_schema=False)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        self._engine = None if engine_client is None else _Engine(engine_client)
        self._rule = rule_of_server(args)

    async def status(self, request: Request) -> Response:
        """The status as JSON; what goes wrong is JSON too, `error` a word and `detail` a line."""
        return await self._answered(request, lambda engine: engine.status())

    async def metrics(self, request: Request) -> Response:
        """Patches and counters of the status as Prometheus text; what goes wrong is JSON, as there."""
        return await self._answered(request, lambda engine: engine.metrics())

    async def _answered(self, request: Request, ask: "Callable[[_Engine], Awaitable[Response]]") -> Response:
        if self._rule is None:
            return _failure(503, "starting", "the server is not ready")
        if not self._rule.admits(request.headers.get("Authorization")):
            return JSONResponse({"error": "Unauthorized"}, 401)
        if self._engine is None:
            return _failure(501, "unsupported", "this server has no engine")
        try:
            return await ask(self._engine)
        except TimeoutError:
            return _failure(504, "timeout", f"the engine did not answer within {ANSWER_WITHIN_S:g} s")
        except Exception as error:
            # vLLM's own handler would answer with the whole text, and that may hold a worker's traceback.
            return _failure(503, "failed", _line(error))


class _Engine:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._cache = question_to(client)
        self._counters = counters_question(client)
        self._patches = patches_question()

    async def status(self) -> Response:
        refusal = server_refusal(self._client)
        if refusal is not None:
            return _failure(501, "unsupported", refusal)
        workers, (patches, counters) = await asyncio.gather(
            self._cache.answer(ANSWER_WITHIN_S), self._patches_and_counters()
        )
        engines = engines_behind(self._client.vllm_config.parallel_config)
        import vllm

        versions = {"dspark_tool": __version__, "vllm": str(vllm.__version__)}
        cache = {"engines": engines, "workers": workers}
        context = {name: told for name, told in counters.items() if name != "configurations"}
        told = {"cache": cache, "patches": patches, "draft_context": context}
        return JSONResponse({**versions, **told, "configurations": counters.get("configurations", [])})

    async def metrics(self) -> Response:
        from prometheus_client import CONTENT_TYPE_LATEST

        from dspark_cli.status_plugin.prometheus_text import prometheus_text

        return Response(prometheus_text(*await self._patches_and_counters()), media_type=CONTENT_TYPE_LATEST)

    async def _patches_and_counters(self) -> tuple[list[PatchStatus], Counters]:
        """Neither may cost a client the rest of the status: what fails is left out, or says why."""
        unknown: list[PatchStatus] = []
        patches, counters = await asyncio.gather(
            _answer_or(self._patches, lambda _: unknown),
            _answer_or(self._counters, lambda reason: {"unsupported": reason}),
        )
        return with_failures(patches, counters.get("failed_patches", {})), counters


async def _answer_or(question: AskedOnce[Answer], otherwise: Callable[[str], Answer]) -> Answer:
    try:
        return await question.answer(ANSWER_WITHIN_S)
    except TimeoutError:
        return otherwise(f"the engine did not answer within {ANSWER_WITHIN_S:g} s")
    except Exception as error:
        return otherwise(_line(error))


def _line(error: Exception) -> str:
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {line}"[:500]


def _failure(code: int, word: str, detail: str) -> JSONResponse:
    return JSONResponse({"error": word, "detail": detail}, code)
