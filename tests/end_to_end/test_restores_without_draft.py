"""A KV connector restores prompts into blocks in which the drafter finds noise, as other requests may leave it.

Stock vLLM drafts upon it; the patched runtime must hide it, and nothing else. Two servers are started, one for each.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.live_server import LiveServer, live_server
from tests.restoring import Counted, Store, connector_environment, count_one_pass, long_prompts

pytestmark = pytest.mark.timeout(900)

PROMPTS = 8
NOISE = 3.0
COLD, WITH_DRAFT, WITHOUT_DRAFT = "cold", "with draft", "without draft"
CHUNKS_OF_NO_BLOCKS = ["--max-num-batched-tokens", "500"]
"""A prompt takes several steps, and a step ends within a block."""

Passes = dict[str, Counted]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restores")


@pytest.fixture(scope="module")
def stock(folder: Path) -> Passes:
    with restoring_server(folder, "off") as (server, store):
        return passes(server, store)


@pytest.fixture(scope="module")
def validity(folder: Path) -> Iterator[tuple[Passes, int]]:
    """And how many tokens of the prompts can be restored."""
    with restoring_server(folder, "validity") as (server, store):
        yield passes(server, store), restorable_tokens(server)


@contextmanager
def restoring_server(folder: Path, policy: str) -> Iterator[tuple[LiveServer, Store]]:
    store = Store(folder / policy)
    store.folder.mkdir()
    arguments = [*store.vllm_args(), *CHUNKS_OF_NO_BLOCKS]
    with live_server(
        folder / f"{policy}.log", faults=True, more_args=arguments, more_environment=connector_environment(policy)
    ) as server:
        yield server, store


def passes(server: LiveServer, store: Store) -> Passes:
    """The noise is laid down before the connector restores, so it stays only where that leaves the drafter out."""
    texts = long_prompts(PROMPTS)
    server.plant("stale-noise", NOISE)
    store.keep_and_restore("all")
    cold, with_draft = (count_one_pass(server, texts) for _ in range(2))
    store.keep_and_restore("target")
    return {COLD: cold, WITH_DRAFT: with_draft, WITHOUT_DRAFT: count_one_pass(server, texts)}


def restorable_tokens(server: LiveServer) -> int:
    """Of the prompts: their whole blocks, without the last token, which has to be computed."""
    found = re.search(r'cache_config_info\{.*?[,{]block_size="(\d+)"', server.metrics())
    assert found is not None
    block = int(found[1])
    answers = [
        httpx.post(f"{server.url}/tokenize", json={"model": "tiny", "prompt": text}, timeout=60).json()
        for text in long_prompts(PROMPTS)
    ]
    return sum((answer["count"] - 1) // block * block for answer in answers)


def test_stock_drafts_collapse_where_the_drafter_was_left_out(stock: Passes) -> None:
    assert stock[WITHOUT_DRAFT].acceptance_length < 1.15
    assert stock[WITH_DRAFT].acceptance_length > 0.95 * stock[COLD].acceptance_length


def test_hidden_noise_costs_next_to_nothing(validity: tuple[Passes, int]) -> None:
    counted, _ = validity

    assert counted[WITHOUT_DRAFT].acceptance_length > 0.95 * counted[COLD].acceptance_length


def test_all_that_the_connector_restored_is_hidden_and_counted(validity: tuple[Passes, int]) -> None:
    counted, restorable = validity
    without = counted[WITHOUT_DRAFT]

    assert (without.external_hits, without.local_hits) == (restorable, 0)
    assert (without.restored_tokens, without.hidden_tokens) == (restorable, restorable)
    assert (without.valid_tokens, without.zeroed_tokens) == (0, 0)


def test_restored_draft_context_proves_itself_by_its_content(stock: Passes, validity: tuple[Passes, int]) -> None:
    counted, restorable = validity
    restored = counted[WITH_DRAFT]

    assert (restored.external_hits, restored.restored_tokens) == (restorable, restorable)
    assert (restored.valid_tokens, restored.hidden_tokens, restored.zeroed_tokens) == (restorable, 0, 0)
    assert (restored.drafts, restored.accepted_tokens) == (stock[WITH_DRAFT].drafts, stock[WITH_DRAFT].accepted_tokens)


def test_cold_prompts_are_drafted_as_by_stock(stock: Passes, validity: tuple[Passes, int]) -> None:
    cold = validity[0][COLD]

    assert (cold.drafts, cold.accepted_tokens) == (stock[COLD].drafts, stock[COLD].accepted_tokens)
    assert (cold.external_hits, cold.restored_tokens) == (0, 0)
