"""An endpoint plugin of vLLM: GET /dspark/status, read-only, on the API server's own port under its own API key."""

from argparse import Namespace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from dspark_cli import __version__
from dspark_cli.status_plugin.api_key import ApiKeyRule, rule_of_server
from dspark_cli.status_plugin.names import PLUGIN, ROUTE
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

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        self._engine = None if engine_client is None else _Engine(engine_client)
        self._rule = rule_of_server(args)

    async def status(self, request: Request) -> JSONResponse:
        """The status as JSON; what goes wrong is JSON too, `error` a word and `detail` a line."""
        if self._rule is None:
            return _failure(503, "starting", "the server is not ready")
        if not self._rule.admits(request.headers.get("Authorization")):
            return JSONResponse({"error": "Unauthorized"}, 401)
        if self._engine is None:
            return _failure(501, "unsupported", "this server has no engine")
        return await self._engine.status()


class _Engine:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._question = question_to(client)

    async def status(self) -> JSONResponse:
        try:
            refusal = server_refusal(self._client)
            if refusal is not None:
                return _failure(501, "unsupported", refusal)
            workers = await self._question.answer(ANSWER_WITHIN_S)
            engines = engines_behind(self._client.vllm_config.parallel_config)
            import vllm

            versions = {"dspark_tool": __version__, "vllm": str(vllm.__version__)}
            return JSONResponse({**versions, "cache": {"engines": engines, "workers": workers}})
        except TimeoutError:
            return _failure(504, "timeout", f"the engine did not answer within {ANSWER_WITHIN_S:g} s")
        except Exception as error:
            # vLLM's own handler would answer with the whole text, and that may hold a worker's traceback.
            line = str(error).partition("\n")[0]
            return _failure(503, "failed", f"{type(error).__name__}: {line}"[:500])


def _failure(code: int, word: str, detail: str) -> JSONResponse:
    return JSONResponse({"error": word, "detail": detail}, code)
