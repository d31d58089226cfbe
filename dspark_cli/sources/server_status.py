"""What the status plugin of a running vLLM server says."""

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dspark_cli import __version__
from dspark_cli.errors import BadInput, NotFit
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.facts.engine_configuration import EngineConfiguration
from dspark_cli.facts.server_diagnosis import PatchStatus, ServerDiagnosis, problems_of
from dspark_cli.sources.bounded_get import collected, get, within
from dspark_cli.sources.own_server import OwnServer
from dspark_cli.sources.server_metrics import metrics_address, without_credentials
from dspark_cli.sources.status_draft_context import ToldContext, check_context, check_length
from dspark_cli.status_plugin.names import ROUTE

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "VLLM_API_KEY"
START_WITH_PLUGIN = "start the server with dspark-tool serve --status"
PLAN_WITHOUT_SERVER = "plan the same without the server: dspark-tool inspect-cache --model MODEL --draft DRAFT"
UNSUPPORTED = 501
LONGEST_NAME = 1_000
LARGEST_NUMBER = 1 << 63
MOST_GROUPS = 4096
MOST_ENGINES = 4096


class NoPlugin(NotFit):
    """The server has no status plugin."""


class KeyWanted(NotFit):
    """The status plugin asks for the server's API key, and it got none or another."""


@dataclass(frozen=True)
class WorkerStatus:
    """One worker's place and its plan, or the reason why it has none to tell."""

    rank: int
    dp_rank: int = 0
    pp_rank: int = 0
    tp_rank: int = 0
    plan: CachePlan | None = None
    unsupported: str | None = None


@dataclass(frozen=True)
class CacheStatus:
    """`engines` of data parallelism are behind the server; `workers` are those of the first one."""

    engines: int
    workers: tuple[WorkerStatus, ...]


@dataclass(frozen=True)
class ServerStatus:
    """`dspark_tool` and `vllm` are the versions in the server; the rest came later than they did."""

    dspark_tool: str
    vllm: str
    cache: CacheStatus
    patches: tuple[PatchStatus, ...] = ()
    draft_context: ToldContext | None = None
    configurations: tuple[EngineConfiguration, ...] = ()
    """One an engine; empty where they cannot be asked."""


def api_key(variable: str | None) -> str | None:
    """The API key in the environment variable that the user names; without a name, in vLLM's own, if it is set.

    Raises:
        BadInput: the named variable is not set, or holds what can be no key. The key itself is never shown.
    """
    key = os.environ.get(variable or KEY_VARIABLE)
    if not key:
        if variable:
            raise BadInput(f"the environment variable {variable} is not set", f"export {variable}=KEY, without quotes")
        return None
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise BadInput(
            f"what {variable or KEY_VARIABLE} holds can be no API key",
            "see that it has no line break or space at its ends",
        )
    return key


def read_status(
    url: str, timeout_s: float = 10.0, key: str | None = None, own: OwnServer | None = None
) -> ServerStatus:
    """Ask the server at `url`, the `own` one if it is that; all of it must end within `timeout_s`.

    Raises:
        BadInput: not an http(s) URL.
        NoPlugin, KeyWanted: what their names say.
        NotFit: nobody answers in time, the plugin cannot tell, or the answer is no status.
    """
    address = status_address(url)
    shown = without_credentials(address)
    # httpx takes the key along to another host on no redirect.
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    def fetched() -> ServerStatus:
        body = get(address, shown, timeout_s, lambda response: _body(response, shown), headers, own=own)
        return parse_status(body, shown)

    return within(timeout_s, shown, fetched)


def read_diagnosis(url: str, timeout_s: float, api_key_env: str | None) -> ServerDiagnosis:
    """Raises as `api_key` and `read_status`."""
    status = read_status(url, timeout_s, api_key(api_key_env))
    told = status.draft_context
    context = told.believed if told else None
    return ServerDiagnosis(
        where=without_credentials(url),
        vllm=status.vllm,
        dspark_tool=status.dspark_tool,
        engines=status.cache.engines,
        patches=status.patches,
        draft_context=context,
        no_context=told.unsupported if told else f"dspark-tool {status.dspark_tool} in the server does not tell",
        problems=tuple(problems_of(status.patches, context)),
        put_on=None if told is None or told.unsupported is not None else _put_on(status, told),
    )


def _put_on(status: ServerStatus, told: ToldContext) -> tuple[str, ...]:
    """Those of the workers, then those of the engine cores."""
    of_processes = [worker.patches for worker in told.workers] + [engine.patches for engine in status.configurations]
    return tuple(dict.fromkeys(name for names in of_processes for name in names))


def status_address(url: str) -> str:
    """`url` with the plugin's route at its end, whatever the user gave of it. Raises BadInput."""
    parts = urlsplit(metrics_address(url))
    return parts._replace(path=parts.path.removesuffix("/metrics") + ROUTE).geturl()


def parse_status(body: bytes, shown: str) -> ServerStatus:
    """The status in a JSON text, believed in nothing: types, ranges and lengths are checked.

    Raises:
        NotFit: it is no status, or one of a version that differs.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        status = TypeAdapter(ServerStatus).validate_json(body)
        _check_plausible(status)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "it"
        raise _no_status(shown, f"{place[:100]}: {first['msg'][:100]}") from None
    except ValueError as error:
        raise _no_status(shown, str(error)) from None
    return status


def _no_status(shown: str, reason: str) -> NotFit:
    return NotFit(
        f"{shown} answers, but with no status that dspark-tool {__version__} can read ({reason})",
        "run the server and this command with the same version of dspark-tool",
    )


def _check_plausible(status: ServerStatus) -> None:
    """Raises ValueError where a figure is negative, absurd or contradicts another, or a name is long or would drive a
    terminal."""
    plans = [worker.plan for worker in status.cache.workers if worker.plan]
    if any(len(plan.groups) > MOST_GROUPS for plan in plans):  # before the walk over all of them
        raise ValueError("a plan has too many groups")
    if not status.cache.workers:
        raise ValueError("no worker is in it")
    if len(status.configurations) > MOST_ENGINES:
        raise ValueError("it has too many engines")
    check_length(status.draft_context, status.patches)
    for value in _leaves(status):
        if isinstance(value, str) and not (len(value) <= LONGEST_NAME and value.isprintable()):
            raise ValueError("a name is too long, or has control characters")
        if isinstance(value, float) and not 0 <= value < LARGEST_NUMBER:  # NaN is not either
            raise ValueError("a number is negative or absurdly large")
        if isinstance(value, int) and not 0 <= value < LARGEST_NUMBER:
            raise ValueError("a count is negative or absurdly large")
    for plan in plans:
        _check_plan(plan)
    if status.draft_context and (context := status.draft_context.believed):
        check_context(context)


def _check_plan(plan: CachePlan) -> None:
    """Raises ValueError where the plan is none that an engine runs with."""
    capacity = (plan.blocks, plan.kv_tokens, plan.full_sequences)
    sound = {
        "it has no groups": bool(plan.groups),
        "a block has no bytes": plan.pool_bytes_per_block > 0,
        "a sequence takes no blocks": plan.blocks_per_sequence > 0,
        "it has no blocks": plan.blocks != 0,
        "a part of the capacity is missing": all(part is None for part in capacity) or None not in capacity,
        "no sequence of the full length fits": plan.largest_length is None,
        "the longest sequence has no tokens": plan.max_model_len > 0,
        "a stage has other groups": all(len(stage.layers) == len(plan.groups) for stage in plan.stages),
    }
    for doubt, fine in sound.items():
        if not fine:
            raise ValueError(f"a plan is not plausible: {doubt}")
    pool_bytes = max(plan.pool_bytes_per_block, plan.replica_bytes_per_block)
    for group in plan.groups:
        _check_group(group, pool_bytes)


def _check_group(group: KVCacheGroup, pool_bytes: int) -> None:
    """Raises ValueError where the group's figures contradict each other, or a block of the pool cannot hold its."""
    sound = {
        "more bytes are copies than are useful": group.copied_block_bytes <= group.useful_block_bytes,
        "more bytes are useful than there are": group.useful_block_bytes <= group.block_bytes,
        "a block is larger than the pool's": group.block_bytes <= pool_bytes,
        # A pipeline stage keeps the groups of which it has no layers.
        "a page has no bytes": group.page_bytes > 0 or not group.layers,
        "a page is larger than its place": group.page_bytes <= group.padded_page_bytes,
        "a block has no tokens": group.block_tokens > 0,
        "a window has no tokens": group.window != 0,
        "no rank holds it": group.copies > 0,
        "more layers are the drafter's than there are": group.draft_layers <= len(group.layers),
    }
    for doubt, fine in sound.items():
        if not fine:
            raise ValueError(f"a group is not plausible: {doubt}")


def _leaves(value: Any) -> Iterable[Any]:
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for held in value:
        yield from _leaves(held)


def _body(response: "httpx.Response", shown: str) -> bytes:
    body = collected(response.iter_raw(), shown, "check host and port")  # no compression was asked for
    _check_success(response, body, shown)
    return body


def _check_success(response: "httpx.Response", body: bytes, shown: str) -> None:
    code = response.status_code
    if code == 200:
        return
    if code == 404:
        raise NoPlugin(f"{shown} is not there: the server has no status plugin", START_WITH_PLUGIN)
    if code in (401, 403):
        raise KeyWanted(
            f"{shown} wants the server's API key", f"export {KEY_VARIABLE}=KEY, or name another variable: --api-key-env"
        )
    what = f"{shown} answers {code}: {_reason(body) or response.reason_phrase}"
    if code == UNSUPPORTED:
        raise NotFit(what, PLAN_WITHOUT_SERVER)
    raise NotFit(what, "ask again when the server is less busy")


def _reason(body: bytes) -> str:
    """The plugin's own words for what went wrong, or nothing."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    return ": ".join(str(answer[key])[:300] for key in ("error", "detail") if isinstance(answer.get(key), str))
