"""The draft contexts of servers that tell them: those started with `dspark-tool serve --status`."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from dspark_cli.errors import ToolError
from dspark_cli.facts.draft_context import DraftContext, ServerContext, over_window
from dspark_cli.sources.server_metrics import metrics_address, without_credentials
from dspark_cli.sources.server_status import api_key, read_status

Contexts = dict[str, DraftContext]
"""By the server's URL as it is displayed."""


def draft_contexts(urls: Sequence[str], timeout_s: float) -> Contexts:
    """One request to each server, all at once. One without the endpoint, or that wants another key, is left out."""
    addresses = {metrics_address(url): url for url in urls}
    with ThreadPoolExecutor(len(addresses) or 1) as pool:
        found = pool.map(lambda url: _context(url, timeout_s), addresses.values())
    return {
        without_credentials(url): context
        for url, context in zip(addresses.values(), found, strict=True)
        if context is not None
    }


def since_start(contexts: Mapping[str, DraftContext], where: Sequence[str]) -> tuple[ServerContext, ...]:
    """Of the servers in `where`, in that order."""
    return tuple(ServerContext(each, contexts[each]) for each in where if each in contexts)


def between(
    before: Mapping[str, DraftContext], after: Mapping[str, DraftContext], where: Sequence[str]
) -> tuple[ServerContext, ...]:
    """Of the servers in `where` that told it twice."""
    both = [each for each in where if each in before and each in after]
    return tuple(ServerContext(each, *over_window(before[each], after[each])) for each in both)


def _context(url: str, timeout_s: float) -> DraftContext | None:
    try:
        told = read_status(url, timeout_s, api_key(None)).draft_context
    except ToolError:
        return None
    return told.believed if told is not None else None
