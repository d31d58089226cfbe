"""The server of a candidate: as `dspark-tool serve` starts it, on a free port, for the time of a block."""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dspark_cli.errors import BadInput
from dspark_cli.facts.tuning import Candidate
from dspark_cli.serving.background import BackgroundProcess, in_background, wait_until_ready
from dspark_cli.serving.command import ServeCommand, serve_command
from dspark_cli.serving.patched_runtime import Wanted
from dspark_cli.serving.speculative import speculate, take_speculative_config
from dspark_cli.serving.vllm_options import words_with_configuration
from dspark_cli.sources.vllm_install import VllmInstall
from dspark_cli.tuning.candidates import SET_BY_TUNE, Also

HOST = "127.0.0.1"
NOT_IN_A_FILE = ("--uds", "--api-key", "--headless", "--api-server-count")
SET_HERE = ("--host", "--port", *NOT_IN_A_FILE)
SHORTEST_ABBREVIATION = len("--ud")


@dataclass(frozen=True)
class RunningServer:
    """`startup_s` is what it took from the start until it answered."""

    url: str
    startup_s: float
    process: BackgroundProcess


class Launch(Protocol):
    """Starts the server of a candidate for the time of a block; raises ServerDied or NotFit where it does not get
    ready."""

    def __call__(
        self, candidate: Candidate, log: Path, on_line: Callable[[str], None]
    ) -> AbstractContextManager[RunningServer]: ...


@dataclass(frozen=True)
class VllmLauncher:
    """Starts real servers. Every call starts one on another port."""

    install: VllmInstall
    target: str
    draft: str
    method: str | None
    vllm_args: tuple[str, ...]
    also: Also | None
    wanted: Wanted
    ready_within_s: float

    def command(self, candidate: Candidate, port: int) -> ServeCommand:
        """Raises BadInput, NotFit: as serve_command."""
        arguments = list(self.vllm_args)
        if self.also is not None and candidate.also is not None:
            arguments += self.also.vllm_args(candidate.also)
            if config := self.also.speculative_config(candidate.also):
                arguments += ["--speculative-config", json.dumps(config)]
        arguments += ["--host", HOST, "--port", str(port)]  # the last ones count
        if not candidate.speculates:
            return serve_command(self.install, self.target, None, arguments)
        speculation = speculate(self.draft, self.method, candidate.tokens)
        return serve_command(self.install, self.target, speculation, arguments, wanted=self.wanted)

    @contextmanager
    def __call__(self, candidate: Candidate, log: Path, on_line: Callable[[str], None]) -> Iterator[RunningServer]:
        port = free_port()
        command = self.command(candidate, port)
        began = time.monotonic()
        with in_background(command.argv, command.added_environment, log, on_line, command.secrets) as process:
            url = f"http://{HOST}:{port}"
            wait_until_ready(process, url, self.ready_within_s)
            yield RunningServer(url, time.monotonic() - began, process)


def require_usable(vllm_args: Sequence[str]) -> None:
    """Raises BadInput: an option that tune sets itself, on the command line or in the file of --config."""
    rest, config = take_speculative_config(list(vllm_args))
    in_file = words_with_configuration(rest)[: -len(rest) or None]
    for words, set_here in ((rest, SET_HERE), (in_file, NOT_IN_A_FILE)):
        for word in words:
            option = word.partition("=")[0].replace("_", "-")
            if any(_is(option, name) for name in set_here):
                raise BadInput(f"{option} does not go with tune, whose servers are its own", f"leave {option} out")
    for key in SET_BY_TUNE.intersection(config):
        raise BadInput(f"--speculative-config sets {key}, which tune is about", f"leave {key} out of it")


def _is(word: str, option: str) -> bool:
    """As the option's name, or abbreviated."""
    return word == option or (len(word) >= SHORTEST_ABBREVIATION and option.startswith(word))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
