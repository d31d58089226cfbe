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
from dspark_cli.sources.cache_planner import Scenario

LAYOUT_VARIABLE = "VLLM_KV_CACHE_LAYOUT"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHORT_SPECULATION = {
    "--spec-method": ("method", str),
    "--spec-model": ("model", str),
    "--spec-tokens": ("num_speculative_tokens", int),
}


@dataclass(frozen=True)
class Deployment:
    """`vllm_args` are those of `vllm serve` without model and speculation. No `speculative_config`: no drafter."""

    model: str
    speculative_config: dict[str, Any] | None
    vllm_args: tuple[str, ...]
    layout: str | None = None
    group_width: int | str | None = None
    gpu_memory_bytes: int | None = None

    def scenario(self, name: str) -> Scenario:
        speculation = self.speculative_config
        speculative_args = ("--speculative-config", json.dumps(speculation)) if speculation is not None else ()
        return Scenario(
            name,
            ("--model", self.model, *self.vllm_args, *speculative_args),
            self.layout,
            self.group_width,
            self.gpu_memory_bytes,
        )

    def with_args(self, *vllm_args: str) -> "Deployment":
        """Later arguments win over earlier ones of the same name."""
        return replace(self, vllm_args=(*self.vllm_args, *vllm_args))

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
        asked = replace(self, layout=layout or self.layout, gpu_memory_bytes=gpu_memory_bytes or self.gpu_memory_bytes)
        if kv_memory_bytes:
            asked = asked.with_args("--kv-cache-memory-bytes", str(kv_memory_bytes))
        if draft_kv_dtype:
            asked = asked.with_speculation(kv_cache_dtype=draft_kv_dtype)
        return asked.with_speculation(disable_eagle_block_drop=True) if keep_trailing_block else asked

    def on_gpu(self, gpu: GpuKind) -> "Deployment":
        """On a GPU of that kind, whose memory counts where none is given."""
        return self if self.gpu_memory_bytes else replace(self, gpu_memory_bytes=gpu.memory_bytes)

    @property
    def memory_is_estimated(self) -> bool:
        """Whether the KV memory is what weights leave of a GPU's, in place of a size that the user gave."""
        options = {word.partition("=")[0].replace("_", "-") for word in self.vllm_args}
        return self.gpu_memory_bytes is not None and "--kv-cache-memory-bytes" not in options

    def without_drafter(self) -> "Deployment":
        return replace(self, speculative_config=None)

    def with_speculation(self, **settings: Any) -> "Deployment":
        """Raises BadInput where there is no drafter to set anything of."""
        if self.speculative_config is None:
            wanted = ", ".join(settings)
            raise BadInput(f"{wanted} is a setting of the drafter, and there is none", "give --draft DRAFTER")
        return replace(self, speculative_config={**self.speculative_config, **settings})


def deployment(model: str | None, speculation: Speculation | None, vllm_args: Sequence[str]) -> Deployment:
    """From the command line's model and drafter and from arguments of vLLM's own, which may name either too.

    Raises:
        BadInput: no model, two of them, or a speculative configuration that contradicts the drafter.
    """
    words, layout = _without_assignments(list(vllm_args))
    words = _without_command(words)
    words, named = _without_model(words)
    if model is not None and named is not None and model != named:
        raise BadInput(f"--model is {model}, and the vLLM arguments serve {named}", "name one model")
    target = model if model is not None else named
    if target is None:
        raise BadInput("no model is named", "give --model MODEL, or a command: --vllm-args 'vllm serve MODEL ...'")
    if speculation is None:
        words = _with_short_speculation_as_json(words)
    rest, given = take_speculative_config(words)
    if speculation is not None:
        given = speculation.merged_with(given)
    return Deployment(target, given or None, tuple(rest), layout)


def split_command(text: str) -> list[str]:
    """The words of a pasted command line; line continuations are only blanks.

    Raises:
        BadInput: a quote is not closed.
    """
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise BadInput(f"--vllm-args cannot be read as a shell would: {error}", "check its quotes") from None


def _without_assignments(words: list[str]) -> tuple[list[str], str | None]:
    """Without the environment in front of a pasted command, of which only the layout changes the plan."""
    layout = None
    while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):
        layout = assignment[2] if assignment[1] == LAYOUT_VARIABLE else layout
        words = words[1:]
    return words, layout


def _without_command(words: list[str]) -> list[str]:
    for expected in ("vllm", "serve"):
        if words and words[0].rpartition("/")[2] == expected:
            words = words[1:]
    return words


def _without_model(words: list[str]) -> tuple[list[str], str | None]:
    if words and not words[0].startswith("-"):
        return words[1:], words[0]
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == "--model":
            if not equals and at + 1 == len(words):
                raise BadInput("--model among the vLLM arguments has no value", "name the model")
            rest = words[:at] + words[at + (1 if equals else 2) :]
            return rest, value if equals else words[at + 1]
    return words, None


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
