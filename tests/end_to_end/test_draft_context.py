"""The patched runtime in a real server: what it hides, what it leaves, and what it counts.

Prompts share their first part with prompts sent before, as with a system prompt, so that part is restored.
"""

import threading
import time
from collections.abc import Iterator

import pytest

from tests.end_to_end.conftest import DRAFTER_LENGTH
from tests.live_server import LiveServer
from tests.measured_server import Counters, Server, long_prompts

pytestmark = pytest.mark.timeout(600)

BLOCK = 128
PROMPTS = 8
OUTPUT = 40
COLLAPSED = 1.15
KEPT = 0.95


@pytest.fixture
def measured(server: LiveServer) -> Iterator[Server]:
    running = Server(server.url)
    running.empty_prefix_cache()
    yield running
    running.call("heal")
    running.call("treat_restored", "validity")
    running.empty_prefix_cache()


@pytest.fixture(scope="module")
def heads() -> list[str]:
    return long_prompts(PROMPTS, 2)


@pytest.fixture(scope="module")
def whole(heads: list[str]) -> list[str]:
    return [f"{head}\n{tail}" for head, tail in zip(heads, long_prompts(PROMPTS, 1, first=37), strict=True)]


def drafted(server: Server, texts: list[str]) -> tuple[Counters, dict[str, int]]:
    """What vLLM and the runtime count while `texts` are completed, one at a time."""
    before, context = server.counters(), server.draft_context()
    server.complete(texts, OUTPUT, ignore_eos=True)
    after, context_after = server.counters(), server.draft_context()
    names = ("admissions", "restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")
    return after.since(before), {name: context_after[name] - context[name] for name in names}


def test_stale_context_is_hidden_and_acceptance_comes_back(
    measured: Server, heads: list[str], whole: list[str]
) -> None:
    cold, counted = drafted(measured, whole)
    assert counted["restored_tokens"] == 0

    lengths, hidden = {}, {}
    for policy in ("off", "restored", "validity"):
        measured.call("treat_restored", policy)
        measured.empty_prefix_cache()
        measured.complete(heads, 1)
        measured.call("plant", "stale-noise", 3.0)
        stale, counted = drafted(measured, whole)
        measured.call("heal")
        lengths[policy], hidden[policy] = stale.acceptance_length, counted
        assert stale.hits > 0

    assert lengths["off"] < COLLAPSED < 1.5 < cold.acceptance_length
    assert lengths["restored"] >= KEPT * cold.acceptance_length
    assert lengths["validity"] >= KEPT * cold.acceptance_length
    for policy in ("restored", "validity"):
        assert hidden[policy]["hidden_tokens"] == hidden[policy]["restored_tokens"] == stale.hits


def test_good_context_is_left_and_drafts_are_those_of_stock(
    measured: Server, heads: list[str], whole: list[str]
) -> None:
    by_policy = {}
    for policy in ("off", "validity"):
        measured.call("treat_restored", policy)
        measured.empty_prefix_cache()
        measured.complete(heads, 1)
        before = measured.counters()
        texts = [answer["text"] for answer in measured.complete(whole, OUTPUT, ignore_eos=True)]
        after = measured.counters().since(before)
        by_policy[policy] = (texts, after.drafts, after.accepted)

    assert by_policy["validity"] == by_policy["off"]


def test_every_restored_token_is_valid_hidden_or_zeroed(measured: Server, heads: list[str], whole: list[str]) -> None:
    measured.complete(heads, 1)

    warm, counted = drafted(measured, whole)

    assert counted["admissions"] == PROMPTS
    assert counted["restored_tokens"] == counted["valid_tokens"] == warm.hits
    assert counted["hidden_tokens"] == counted["zeroed_tokens"] == 0


def beside_a_long_request(server: Server, texts: list[str]) -> list[int]:
    """Have `texts` prefilled while a request beyond the drafter's length runs; what a hit restores of each, in tokens:
    its whole blocks but the last, which vLLM drops under speculation."""
    long = "\n".join(long_prompts(1, 7, first=11))
    tokens = server.complete([long], 1)[0]["usage"]["prompt_tokens"]
    assert tokens > DRAFTER_LENGTH, "the long request must not fit the drafter"
    running = threading.Thread(target=server.complete, args=([long], 800), kwargs={"ignore_eos": True})
    running.start()
    time.sleep(2)
    answers = server.complete(texts, 1)
    assert running.is_alive(), "the long request ended before the others were prefilled"
    running.join()
    return [(answer["usage"]["prompt_tokens"] // BLOCK - 1) * BLOCK for answer in answers]


@pytest.mark.parametrize("fault", ["skipped-drafter", None])
def test_what_a_skipped_drafter_left_unwritten_is_hidden_and_with_the_fix_there_is_nothing(
    measured: Server, heads: list[str], whole: list[str], fault: str | None
) -> None:
    cold, _ = drafted(measured, whole)
    measured.empty_prefix_cache()
    measured.call("plant", "dirty-pool", 3.0)
    if fault is not None:
        measured.call("plant", fault)  # takes the fix back: vLLM as it is
    restorable = beside_a_long_request(measured, heads)

    hit, counted = drafted(measured, whole)

    assert counted["restored_tokens"] == hit.hits == sum(restorable)
    assert counted["hidden_tokens"] == (sum(restorable) if fault else 0)
    assert counted["valid_tokens"] == (0 if fault else sum(restorable))
    assert hit.acceptance_length >= KEPT * cold.acceptance_length


def test_without_hiding_what_a_skipped_drafter_left_collapses(
    measured: Server, heads: list[str], whole: list[str]
) -> None:
    measured.call("treat_restored", "off")
    measured.call("plant", "dirty-pool", 3.0)
    measured.call("plant", "skipped-drafter")
    beside_a_long_request(measured, heads)

    hit, _ = drafted(measured, whole)

    assert hit.acceptance_length < COLLAPSED
