"""One real server for the whole test run."""

import json
from collections.abc import Iterator

import pytest

from tests.live_server import LiveServer, live_server, prompts

SHORT_RUN = 12
DRAFTER_LENGTH = 2048
"""A request beyond it makes model runner V1 skip the drafter for all requests of the step."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server, after a few real requests: some 250 draft steps, enough for a verdict."""
    limit = ["--speculative-config", json.dumps({"max_model_len": DRAFTER_LENGTH})]
    with live_server(tmp_path_factory.mktemp("server") / "log", faults=True, more_args=limit) as running:
        for prompt in prompts()[:SHORT_RUN]:
            running.complete(prompt)
        yield running
