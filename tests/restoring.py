"""Prompts that a server's KV connector restores with or without the drafter's KV, and what is counted meanwhile.

The connector is tests/connectors/target_only_connector.py.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.live_server import Served, prompts
from tests.measured_server import Server
from tests.paths import TESTS

TEXTS_A_PROMPT = 3
"""Three of tests/models/prompts.json are about 1,000 tokens."""
CONTEXT_COUNTERS = ("restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")


@dataclass(frozen=True)
class Store:
    """The folder in which the connector keeps blocks."""

    folder: Path

    def vllm_args(self) -> list[str]:
        config = {
            "kv_connector": "TargetOnlyConnector",
            "kv_connector_module_path": "target_only_connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": str(self.folder), "layers": "all"},
        }
        return ["--kv-transfer-config", json.dumps(config)]

    def keep_and_restore(self, layers: str) -> None:
        """`target` or `all`, from the next request on."""
        (self.folder / "layers").write_text(layers)


@dataclass(frozen=True)
class Counted:
    """Of one pass over the prompts. The last four are what the patched runtime says; zeros where it is off."""

    drafts: int
    accepted_tokens: int
    external_hits: int
    local_hits: int
    restored_tokens: int
    valid_tokens: int
    hidden_tokens: int
    zeroed_tokens: int

    @property
    def acceptance_length(self) -> float:
        """Tokens a draft step yields, the target's own one included."""
        return 1 + self.accepted_tokens / self.drafts


def connector_environment(policy: str) -> dict[str, str]:
    """Of a server with the connector and the faults of tests/faults, under a policy for restored draft context."""
    return {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_DSPARK_DRAFT_CONTEXT": policy,
        "PYTHONPATH": os.pathsep.join(str(TESTS / folder) for folder in ("connectors", "faults")),
    }


def long_prompts(count: int) -> list[str]:
    texts = prompts()
    starts = range(0, count * TEXTS_A_PROMPT, TEXTS_A_PROMPT)
    return ["\n".join(texts[start : start + TEXTS_A_PROMPT]) for start in starts]


def count_one_pass(server: Served, texts: Sequence[str]) -> Counted:
    """Empty the server's own prefix cache, send the prompts one after the other, and say what that added."""
    measured = Server(server.url)
    measured.empty_prefix_cache()
    before, context = measured.counters(), measured.draft_context()
    for text in texts:
        server.complete(text)
    after, context_after = measured.counters().since(before), measured.draft_context()
    return Counted(
        drafts=int(after.drafts),
        accepted_tokens=int(after.accepted),
        external_hits=int(after.external_hits),
        local_hits=int(after.hits),
        **{name: context_after[name] - context[name] for name in CONTEXT_COUNTERS},
    )
