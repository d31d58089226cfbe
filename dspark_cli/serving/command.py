"""The command that starts the server, and how it is shown without secrets."""

import json
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from dspark_cli.serving.patched_runtime import PatchedRuntime, Wanted, patched_runtime
from dspark_cli.serving.plugins import plugin_environment
from dspark_cli.serving.speculative import Speculation, take_speculative_config
from dspark_cli.sources.vllm_install import VllmInstall

SECRET_OPTIONS = ("--api-key", "--hf-token", "--ssl-keyfile-password")
SHORTEST_ABBREVIATION = len("--ap")
SECRET_KEY = re.compile(r"(api|access|secret|private)[_-]?key|auth[_-]?token|hf_token|secret|passw", re.I)
MASK = "***"


@dataclass(frozen=True)
class ServeCommand:
    """`argv` starts the server (no shell); `added_environment` comes on top of the environment."""

    vllm: str
    argv: list[str]
    added_environment: dict[str, str]
    speculative_config: dict[str, Any]
    runtime: PatchedRuntime = field(default_factory=PatchedRuntime)

    def shown(self) -> str:
        """For a shell, quoted, with secrets masked."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.added_environment.items()]
        return " ".join([*variables, shlex.join(without_secrets(self.argv))])

    def as_shown(self) -> "ServeCommand":
        """A copy without secrets, to print."""
        return replace(self, argv=without_secrets(self.argv), speculative_config=_masked(self.speculative_config))


def serve_command(
    install: VllmInstall,
    model: str,
    speculation: Speculation,
    vllm_args: list[str],
    status: bool = False,
    wanted: Wanted | None = None,
) -> ServeCommand:
    """`status` switches the status plugin on. Without `wanted` the server is stock vLLM.

    Raises:
        BadInput: the user's arguments contradict the drafter, or name a policy or patch that there is not.
        NotFit: a plugin cannot be switched on, or a patch that this start needs does not fit.
    """
    rest, given = take_speculative_config(vllm_args)
    config = speculation.merged_with(given)
    runtime = PatchedRuntime() if wanted is None else patched_runtime(install, wanted, config)
    arguments = [*rest, "--speculative-config", json.dumps(config)]
    return ServeCommand(
        vllm=f"{install.distribution} {install.version}",
        argv=[sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", model, *arguments],
        added_environment={
            **install.added_environment(),
            **plugin_environment(install, runtime.plugins, status),
            **({} if wanted is None else runtime.environment()),
        },
        speculative_config=config,
        runtime=runtime,
    )


def without_secrets(argv: list[str]) -> list[str]:
    """`argv` with API keys and tokens masked: the values of such options, abbreviated as vLLM's parser allows, and of
    such keys in JSON values."""
    shown: list[str] = []
    follows_secret = False
    for word in argv:
        option, equals, value = word.partition("=")
        if word.startswith("--"):
            follows_secret = _is_secret(option)
            masked = MASK if follows_secret else _masked_json(value)
            shown.append(f"{option}={masked}" if equals else word)
        else:
            shown.append(MASK if follows_secret else _masked_json(word))
    return shown


def _is_secret(option: str) -> bool:
    name = option.lower().replace("_", "-")
    return len(name) >= SHORTEST_ABBREVIATION and any(secret.startswith(name) for secret in SECRET_OPTIONS)


def _masked_json(text: str) -> str:
    if not text.startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    masked = _masked(value)
    return text if masked == value else json.dumps(masked)


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: MASK if SECRET_KEY.search(str(key)) else _masked(held) for key, held in value.items()}
    return [_masked(held) for held in value] if isinstance(value, list) else value
