"""The command that starts the server, and how it is shown without secrets."""

import shlex
import sys
from dataclasses import dataclass, replace
from typing import Any

from dspark_cli.serving.speculative import Speculation, take_speculative_config, with_speculative_config
from dspark_cli.sources.vllm_install import VllmInstall

SECRET_OPTIONS = ("--api-key", "--hf-token", "--ssl-keyfile-password")
MASK = "***"


@dataclass(frozen=True)
class ServeCommand:
    """`argv` starts the server (no shell); `added_environment` comes on top of the environment."""

    vllm: str
    argv: list[str]
    added_environment: dict[str, str]
    speculative_config: dict[str, Any]

    def shown(self) -> str:
        """For a shell, quoted, with secrets masked."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.added_environment.items()]
        return " ".join([*variables, shlex.join(without_secrets(self.argv))])

    def as_shown(self) -> "ServeCommand":
        """A copy without secrets, to print."""
        return replace(self, argv=without_secrets(self.argv))


def serve_command(install: VllmInstall, model: str, speculation: Speculation, vllm_args: list[str]) -> ServeCommand:
    """Raises BadInput where the user's arguments contradict the drafter."""
    arguments = with_speculative_config(vllm_args, speculation)
    _, config = take_speculative_config(arguments)
    return ServeCommand(
        vllm=f"{install.distribution} {install.version}",
        argv=[sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", model, *arguments],
        added_environment=install.added_environment(),
        speculative_config=config,
    )


def without_secrets(argv: list[str]) -> list[str]:
    """`argv` with the values of API keys and tokens masked."""
    shown: list[str] = []
    hide_values_of: str | None = None
    for word in argv:
        option, equals, _ = word.partition("=")
        if word.startswith("-"):
            hide_values_of = option.replace("_", "-")
            secret = hide_values_of in SECRET_OPTIONS and equals
            shown.append(f"{option}={MASK}" if secret else word)
        else:
            shown.append(MASK if hide_values_of in SECRET_OPTIONS else word)
    return shown
