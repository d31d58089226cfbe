"""The deployment that a user asks about: a model, its drafter and how they would be served."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dspark_cli.errors import BadInput
from dspark_cli.facts.gpu_kind import GpuKind
from dspark_cli.serving.speculative import Speculation, take_speculative_config
from dspark_cli.sources.cache_planner import LAYOUT_VARIABLE, Scenario

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHORT_SPECULATION = {
    "--spec-method": ("method", str),
    "--spec-model": ("model", str),
    "--spec-tokens": ("num_speculative_tokens", int),
}


@dataclass(frozen=True)
class Deployment:
    """`vllm_args` are those of `vllm serve` without speculation; the model is among them."""

    vllm_args: tuple[str, ...]
    speculative_config: dict[str, Any] | None = None
    """None: no drafter that this side knows of; a --config file may name one."""
    environment: tuple[tuple[str, str], ...] = ()
    drafter: bool = True
    group_width: int | None = None
    every: tuple[str, ...] = ()
    exact_options: tuple[str, ...] = ()
    gpu_memory_bytes: int | None = None

    def scenario(self, name: str) -> Scenario:
        speculation = self.speculative_config
        speculative_args = ("--speculative-config", json.dumps(speculation)) if speculation is not None else ()
        return Scenario(
            name=name,
            vllm_args=(*self.vllm_args, *speculative_args),
            environment=self.environment,
            drafter=self.drafter,
            group_width=self.group_width,
            every=self.every,
            exact_options=self.exact_options,
            gpu_memory_bytes=self.gpu_memory_bytes,
        )

    def with_args(self, *vllm_args: str) -> "Deployment":
        """Later arguments win over earlier ones of the same name."""
        return replace(self, vllm_args=(*self.vllm_args, *vllm_args))

    def with_layout(self, layout: str) -> "Deployment":
        return replace(self, environment=(*self.environment, (LAYOUT_VARIABLE, layout)))

    def asking_for(
        self,
        kv_memory_bytes: int | None,
        gpu_memory_bytes: int | None,
        layout: str | None,
        draft_kv_dtype: str | None,
        keep_trailing_block: bool,
    ) -> "Deployment":
        """With what the command line says in words of its own.

        Raises:
            BadInput: a setting of the drafter without a drafter.
        """
        asked = replace(self, gpu_memory_bytes=gpu_memory_bytes or self.gpu_memory_bytes)
        if layout:
            asked = asked.with_layout(layout)
        if kv_memory_bytes:
            asked = asked.with_args("--kv-cache-memory-bytes", str(kv_memory_bytes))
        if draft_kv_dtype:
            asked = asked.with_speculation({"kv_cache_dtype": draft_kv_dtype})
        return asked.with_speculation({"disable_eagle_block_drop": True}) if keep_trailing_block else asked

    def on_gpu(self, gpu: GpuKind) -> "Deployment":
        """On a GPU of that kind, whose memory counts where none is given."""
        return self if self.gpu_memory_bytes else replace(self, gpu_memory_bytes=gpu.memory_bytes)

    def without_drafter(self) -> "Deployment":
        return replace(self, drafter=False)

    @property
    def may_have_drafter(self) -> bool:
        return self.speculative_config is not None or any(word.startswith("--config") for word in self.vllm_args)

    def with_speculation(self, settings: dict[str, Any]) -> "Deployment":
        """Raises BadInput where there is no drafter to set anything of."""
        if self.speculative_config is None:
            wanted = ", ".join(settings)
            raise BadInput(f"{wanted} is a setting of the drafter, and there is none", "give --draft DRAFTER")
        return replace(self, speculative_config={**self.speculative_config, **settings})


def deployment(model: str | None, speculation: Speculation | None, vllm_args: Sequence[str]) -> Deployment:
    """From the command line's model and drafter and from arguments of vLLM's own, which may name either too.

    Raises:
        BadInput: no arguments at all, two models, or a speculative configuration that contradicts the drafter.
    """
    words, environment = _without_assignments(list(vllm_args))
    words = _without_command(words)
    named = named_model(words)
    if model is not None and named is not None and model != named:
        raise BadInput(f"--model is {model}, and the vLLM arguments serve {named}", "name one model")
    if model is None and not words:
        raise BadInput("no model is named", "give --model MODEL, or a command: --vllm-args 'vllm serve MODEL ...'")
    if speculation is None:
        words = _with_short_speculation_as_json(words)
    rest, given = take_speculative_config(words)
    if speculation is not None:
        given = speculation.merged_with(given)
    own_model = ("--model", model) if model is not None and named is None else ()
    return Deployment((*rest, *own_model), given or None, environment)


def named_model(words: Sequence[str]) -> str | None:
    """The model that vLLM's arguments begin with or name by option. It may stand elsewhere among them; then only vLLM's
    parser can tell it from a value."""
    if words and not words[0].startswith("-"):
        return words[0]
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--model":
            return value if equals else next(iter(words[at + 1 : at + 2]), None)
    return None


def split_command(text: str) -> list[str]:
    """The words of a pasted command line; line continuations are only blanks.

    Raises:
        BadInput: a quote is not closed.
    """
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise BadInput(f"--vllm-args cannot be read as a shell would: {error}", "check its quotes") from None


def _without_assignments(words: list[str]) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Without the environment in front of a pasted command; vLLM's variables may change the plan."""
    variables: list[tuple[str, str]] = []
    while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):
        if assignment[1].startswith("VLLM_"):
            variables.append((assignment[1], assignment[2]))
        words = words[1:]
    return words, tuple(variables)


def _without_command(words: list[str]) -> list[str]:
    for expected in ("vllm", "serve"):
        if words and words[0].rpartition("/")[2] == expected:
            words = words[1:]
    return words


def _with_short_speculation_as_json(words: list[str]) -> list[str]:
    """vLLM's short options for a drafter, as the configuration that they stand for."""
    rest: list[str] = []
    settings: dict[str, Any] = {}
    following = iter(words)
    for word in following:
        option, equals, value = word.partition("=")
        if option not in _SHORT_SPECULATION:
            rest.append(word)
            continue
        key, kind = _SHORT_SPECULATION[option]
        try:
            settings[key] = kind(value if equals else next(following, ""))
        except ValueError:
            raise BadInput(f"{option} takes a number", f"give one like {option} 7") from None
    return [*rest, "--speculative-config", json.dumps(settings)] if settings else rest
