"""One real server for the whole test run."""

from collections.abc import Iterator

import pytest

from tests.live_server import LiveServer, live_server, prompts

SHORT_RUN = 12


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server, after a few real requests: some 250 draft steps, enough for a verdict."""
    with live_server(tmp_path_factory.mktemp("server") / "log", faults=True) as running:
        for prompt in prompts()[:SHORT_RUN]:
            running.complete(prompt)
        yield running
