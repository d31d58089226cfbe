"""One real server for the whole test run."""

from collections.abc import Iterator

import pytest

from tests.live_server import LiveServer, live_server, prompts

SHORT_RUN = 6


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server, after a few real requests."""
    with live_server(tmp_path_factory.mktemp("server") / "log") as running:
        for prompt in prompts()[:SHORT_RUN]:
            running.complete(prompt)
        yield running
