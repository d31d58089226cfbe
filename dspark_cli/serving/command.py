"""The command that starts the server, and how it is shown without secrets."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dspark_cli.serving.patched_runtime import PatchedRuntime, Wanted, patched_runtime
from dspark_cli.serving.plugins import plugin_environment
from dspark_cli.serving.secrets import masked_environment, masked_keys, out_of_sight, secrets_of, without_secrets
from dspark_cli.serving.shell_words import quoted, shell_line
from dspark_cli.serving.speculative import Speculation, take_speculative_config
from dspark_cli.sources.vllm_install import VllmInstall


@dataclass(frozen=True)
class ServeCommand:
    """`argv` starts the server (no shell); `added_environment` comes on top of the environment. `notes` are for the
    user."""

    vllm: str
    argv: list[str]
    added_environment: dict[str, str]
    speculative_config: dict[str, Any]
    runtime: PatchedRuntime = field(default_factory=PatchedRuntime)
    notes: tuple[str, ...] = ()
    draft_layers: int | None = None
    """How many layers the drafter gives a KV cache; None where that is not known."""

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the server."""
        return {**os.environ, **self.added_environment}

    @property
    def secrets(self) -> frozenset[str]:
        """What must be masked wherever the server prints it."""
        return secrets_of(self.argv, self.environment)

    def shown(self) -> str:
        """For a shell, quoted, with secrets masked."""
        variables = [f"{name}={quoted(value)}" for name, value in self._shown_environment().items()]
        return " ".join([*variables, shell_line(without_secrets(self.argv))])

    def as_shown(self) -> "ServeCommand":
        """A copy without secrets, to print."""
        return replace(
            self,
            argv=without_secrets(self.argv),
            added_environment=self._shown_environment(),
            speculative_config=masked_keys(self.speculative_config),
        )

    def _shown_environment(self) -> dict[str, str]:
        return masked_environment(self.added_environment)


def serve_command(
    install: VllmInstall,
    model: str,
    speculation: Speculation | None,
    vllm_args: Sequence[str],
    status: bool = False,
    wanted: Wanted | None = None,
) -> ServeCommand:
    """`status` switches the status plugin on. Without `wanted` the server is stock vLLM; without `speculation` it does
    not speculate, whatever --speculative-config the arguments have.

    Raises:
        BadInput: the user's arguments contradict the drafter, or name a policy or patch that there is not.
        NotFit: a plugin cannot be switched on, or a patch that this start needs does not fit.
    """
    vllm_args, handed_over, notes = out_of_sight(list(vllm_args))
    rest, given = take_speculative_config(vllm_args)
    config = speculation.merged_with(given) if speculation else {}
    runtime = PatchedRuntime() if wanted is None else patched_runtime(install, wanted, config)
    arguments = [*rest, "--speculative-config", json.dumps(config)] if speculation else rest
    return ServeCommand(
        vllm=f"{install.distribution} {install.version}",
        argv=[sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", model, *arguments],
        added_environment={
            **install.added_environment(),
            **plugin_environment(install, runtime.plugins, status),
            **({} if wanted is None else runtime.environment()),
            **handed_over,
        },
        speculative_config=config,
        runtime=runtime,
        notes=tuple(notes),
        draft_layers=speculation.draft_layers if speculation else None,
    )
