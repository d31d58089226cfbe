"""What a vLLM server's log says of its configuration and its patches, gathered line by line while it starts."""

import re
from dataclasses import dataclass, field
from typing import TypeVar

WAITING = "no draft step yet"
"""What a worker says of a draft context that will come."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_SPEAKER = re.compile(r"^(?:\([^()=]{0,100}\bpid=[^()]{0,100}\) )+")
_ENGINE = re.compile(r"Initializing a V1 LLM engine .* with config: ")
_DRAFTING = re.compile(
    r"speculative_config=SpeculativeConfig\(method='([^']*)', model='(.*?)', num_spec_tokens=(\d+)\)"
)
_NUMBER = {
    name: re.compile(rf"\b{name}=(\d+)")
    for name in ("max_seq_len", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
}
_PREFIX_CACHING = re.compile(r"\benable_prefix_caching=(True|False)")
_NO_PREFIX_CACHING = re.compile(r"Disabling prefix caching|prefix caching to be disabled|prefix caching: disabling")
_NO_SCHEDULE = re.compile(r"Disabling num_speculative_tokens_per_batch_size")
_CONTEXT = re.compile(r"\binstall\.py:\d+\] draft context: (\w+)(?:, on runner \w+| \((.*?)\))(?: \[repeated|$)")
_PATCH = re.compile(r"\b(?:install|put_on)\.py:\d+\] patch (\w+): (applied|not applied: .*)$")
_PLUGIN = re.compile(r"Failed to load plugin (dspark_\w+)")
MOST_SPEAKERS = 4096

Told = TypeVar("Told")


@dataclass(frozen=True)
class LoggedEngine:
    """As the engine was told to run; what it decided itself afterwards stands in lines of its own. None is what the log
    does not say, the method "none" that nothing is drafted. Of `engines` of data parallelism, with `workers` each, the
    first alone says all this."""

    method: str | None
    drafter: str | None
    tokens: int | None
    max_model_len: int | None
    prefix_caching: bool | None
    workers: int
    engines: int = 1


@dataclass
class StartupLog:
    """By speaker, which is a process as the log names it: `engines`, `contexts` (policy, state) and `patches`, what
    each process says of each patch. `lost_plugins` are those of dspark-tool that a process could not load."""

    engines: dict[str, LoggedEngine] = field(default_factory=dict)
    contexts: dict[str, tuple[str, str]] = field(default_factory=dict)
    patches: dict[str, dict[str, str]] = field(default_factory=dict)
    lost_plugins: dict[str, str] = field(default_factory=dict)
    no_prefix_caching: bool = False
    no_schedule: bool = False

    def read(self, line: str) -> bool:
        """Take note of what `line` says, and tell whether it says anything of this."""
        plain = _ESCAPES.sub("", line).rstrip()
        if _NO_PREFIX_CACHING.search(plain):
            self.no_prefix_caching = True
        elif _NO_SCHEDULE.search(plain):
            self.no_schedule = True
        else:
            return self._read_process(plain)
        return True

    def _read_process(self, plain: str) -> bool:
        found = _SPEAKER.match(plain)
        speaker = found[0].strip() if found else ""
        if _ENGINE.search(plain):
            _keep(self.engines, speaker, _engine(plain))
        elif context := _CONTEXT.search(plain):
            _keep(self.contexts, speaker, (context[1], context[2] or WAITING))
        elif patch := _PATCH.search(plain):
            _keep(self.patches.setdefault(patch[1], {}), speaker, patch[2])
        elif plugin := _PLUGIN.search(plain):
            _keep(self.lost_plugins, speaker, plugin[1])
        else:
            return False
        return True

    @property
    def workers(self) -> int:
        """How many all engines together are to have; 0 where the log has said of no engine."""
        return max((engine.workers * engine.engines for engine in self.engines.values()), default=0)

    @property
    def cores(self) -> int:
        """How many engines there are to be."""
        return max((engine.engines for engine in self.engines.values()), default=0)


def _keep(told: dict[str, Told], speaker: str, what: Told) -> None:
    if len(told) < MOST_SPEAKERS:
        told[speaker] = what


def _engine(line: str) -> LoggedEngine:
    drafting = _DRAFTING.search(line)
    prefix_caching = _PREFIX_CACHING.search(line)
    ranks = (_number(line, "tensor_parallel_size") or 1) * (_number(line, "pipeline_parallel_size") or 1)
    return LoggedEngine(
        method=drafting[1] if drafting else "none" if "speculative_config=None," in line else None,
        drafter=drafting and drafting[2],
        tokens=int(drafting[3][:9]) if drafting else None,
        max_model_len=_number(line, "max_seq_len"),
        prefix_caching=prefix_caching and prefix_caching[1] == "True",
        workers=min(ranks, MOST_SPEAKERS),
        engines=min(_number(line, "data_parallel_size") or 1, MOST_SPEAKERS),
    )


def _number(line: str, name: str) -> int | None:
    found = _NUMBER[name].search(line)
    return int(found[1][:18]) if found else None
