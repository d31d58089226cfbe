"""What a vLLM log says of the KV cache, in the words of releases 0.26 to 0.33."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_cli.errors import BadInput, CannotSay
from dspark_cli.facts.cache_summary import CacheSource, CacheSummary, EngineCache, PaddingLayers, Unknown
from dspark_cli.sources.bounded_lines import bounded_lines
from dspark_cli.sources.server_status import START_WITH_PLUGIN
from dspark_cli.status_plugin.names import PLUGIN

MOST_ENGINES = 4096
MOST_PADDED_BUCKETS = 1024
ASK_SERVER = "ask the running server: dspark-tool inspect-cache --url URL"
NO_MEMORY = "the server had no memory left for the KV cache"

Figures = dict[str, Any]
"""Fields of EngineCache."""

_LINE = re.compile(
    r"(?:\((?P<process>[\w .-]{1,80}) pid=\d+\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"\d\d-\d\d \d\d:\d\d:\d\d \[[^\]]{1,200}\] (?P<message>.*)"
)
"""A message counts only at its own place: a request's text may quote one."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENGINE = re.compile(r"EngineCore(?:.*_DP(?P<rank>\d+)|_(?P<old_rank>\d+))?")
_DP_WORKER = re.compile(r"Worker.*_DP(?P<rank>\d+)")
_SERVER_STARTS = re.compile(r"non-default args: ")
_PLUGIN_LOADED = re.compile(rf"Loaded endpoint plugin {re.escape(PLUGIN)}$")
_ENGINE_STARTS = re.compile(
    r"Initializing a V1 LLM engine \(v(?P<version>[\w.+-]{1,40})\).* max_seq_len=(?P<length>\d{1,18}), "
    r"(?:.*, kv_cache_dtype=(?P<kv_dtype>[\w.]{1,40}),)?(?:.*, enable_prefix_caching=(?P<prefix_caching>True|False),)?"
)
_COUNT = r"(\d[\d,]{0,23})"
_GIB = r"(-?\d{1,12}\.\d{1,6})"
_SAYS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Figures]], ...] = tuple(
    (re.compile(pattern), figures)
    for pattern, figures in (
        (rf"\w+(?: \+ host)? KV cache size: {_COUNT} tokens", lambda m: {"kv_tokens": _count(m[1])}),
        (
            rf"(?:.*, )?Maximum concurrency for {_COUNT} tokens per request: (\d{{1,12}}\.\d{{2}})x",
            lambda m: {"max_model_len": _count(m[1]), "full_sequences": float(m[2])},
        ),
        (rf"Available KV cache memory: {_GIB} GiB", lambda m: {"memory_gib": float(m[1])}),
        (rf"(?:Explicitly|Auto) set \({_GIB}/[\d.]+\) GiB for KV cache", lambda m: {"memory_gib": float(m[1])}),
        (rf"Initial free memory .*, reserved {_GIB} GiB memory for KV Cache", lambda m: {"memory_gib": float(m[1])}),
        (rf"Reserving .* KV cache memory reduced to {_GIB} GiB", lambda m: {"memory_gib": float(m[1])}),
        (
            rf"Overriding num_gpu_blocks={_COUNT} with num_gpu_blocks_override={_COUNT}",
            lambda m: {"blocks_that_would_fit": _count(m[1]), "blocks": _count(m[2])},
        ),
        (r"Using (\w{1,20}) KV cache layout", lambda m: {"layout": m[1]}),
        (r".*Setting KV cache layout to (\w{1,20})\.", lambda m: {"layout": m[1]}),
        (r"kv cache group sizes \(([\d, ]{1,4000})\)", lambda m: {"group_block_tokens": _counts(m[1])}),
        (rf"kv lcm block sizes {_COUNT}", lambda m: {"scheduler_block_tokens": _count(m[1])}),
        (
            rf"(?:\[XPU\])?Setting attention block size to {_COUNT} tokens",
            lambda m: {"raised_block_tokens": _count(m[1])},
        ),
        (r"Padding mamba page size by (\d{1,9}\.\d+)%", lambda m: {"state_padding_percent": float(m[1])}),
        (
            rf"Add {_COUNT} padding layers, may waste at most (\d{{1,9}}\.\d+)% KV cache",
            lambda m: {"padding_layers": (PaddingLayers(_count(m[1]), float(m[2])),)},
        ),
        (
            rf"Auto-fit max_model_len: reduced from {_COUNT} to {_COUNT} ",
            lambda m: {"fitted_from": _count(m[1]), "max_model_len": _count(m[2])},
        ),
        (rf"Using max model len {_COUNT}", lambda m: {"max_model_len": _count(m[1])}),
        (r"Hybrid KV cache manager is disabled|Turning off hybrid kv cache", lambda m: {"hybrid_manager": False}),
    )
)


def read_cache_log(path: Path) -> CacheSummary:
    """The KV cache of the server that wrote `path`, of its last start where there are several.

    Reads line by line, in constant memory.

    Raises:
        BadInput: it is no regular file that can be read; a pipe without a writer would be waited for.
        CannotSay: no line in it is about the KV cache.
    """
    try:
        if not path.is_file():
            raise BadInput(f"{path} is no regular file", "give the log of a vLLM server: --log FILE")
        with path.open("rb") as log:
            return summary_of_log(bounded_lines(log), str(path))
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", "give the log of a vLLM server: --log FILE"
        ) from None


def summary_of_log(lines: Iterable[str], where: str) -> CacheSummary:
    """Raises CannotSay where no line is about the KV cache."""
    reader = _LogReader()
    for line in lines:
        reader.read(line)
    engines = reader.engines()
    if not engines:
        raise CannotSay(
            f"{where} has no line of vLLM's about its KV cache",
            "give the log from the server's start, as vLLM writes it by default; did the server get that far?",
        )
    how = ASK_SERVER if reader.has_plugin else START_WITH_PLUGIN
    unknown = [
        Unknown("page sizes, layers of each group and which are the drafter's", how),
        Unknown("where prefix hits can end", how),
    ]
    if any(engine.blocks is None for engine in engines):
        unknown.insert(0, Unknown("the number of blocks", ASK_SERVER))
    if any(engine.kv_tokens is None for engine in engines):
        unknown.insert(0, Unknown("the capacity", "see further down the log whether the server started at all"))
    notes = [f"the log has {reader.starts} starts of the server; this is the last one"] * (reader.starts > 1)
    if any(_ran_out_of_memory(engine) for engine in engines):
        notes.append(NO_MEMORY)
    return CacheSummary(
        source=CacheSource.LOG,
        where=where,
        vllm=reader.version,
        engines=engines,
        unknown=tuple(unknown),
        notes=tuple(notes),
    )


def _ran_out_of_memory(engine: EngineCache) -> bool:
    """A cache of a few MiB is rounded to 0.00 GiB too, but has its tokens."""
    return engine.memory_gib is not None and engine.memory_gib <= 0 and engine.kv_tokens is None


class _LogReader:
    """Collects figures: those of one engine's own lines, and those that the server prints for all of them."""

    def __init__(self) -> None:
        self.starts = 0
        self.version: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._of_all: Figures = {}
        self._of_engine: dict[str, Figures] = {}
        self._engine_started = False
        self.has_plugin = False
        self._speaks_of_cache = False

    def read(self, line: str) -> None:
        found = _LINE.search(_COLOUR.sub("", line))
        if found is None:
            return
        message, engine = found["message"], _engine_of(found["process"] or "")
        if _SERVER_STARTS.match(message):
            self.starts += 1
            self._forget()
        elif started := _ENGINE_STARTS.match(message):
            self._start(started)
        self.has_plugin |= bool(_PLUGIN_LOADED.match(message))
        figures: Figures = {}
        for pattern, says in _SAYS:
            if match := pattern.match(message):
                figures |= says(match)
        self._speaks_of_cache |= bool(figures.keys() - {"max_model_len"})
        self._add(figures, engine)

    def _start(self, started: re.Match[str]) -> None:
        """An engine says its configuration, once for all engines of a server."""
        if self._engine_started or self.starts == 0:
            self.starts += 1
            if self._engine_started:
                self._forget()
        self._engine_started = True
        self.version = started["version"]
        caching = started["prefix_caching"]
        said = {
            "max_model_len": _count(started["length"]),
            "kv_dtype": started["kv_dtype"],
            "prefix_caching": None if caching is None else caching == "True",
        }
        self._add({name: value for name, value in said.items() if value is not None}, None)

    def _add(self, figures: Figures, engine: str | None) -> None:
        if engine is not None and engine not in self._of_engine and len(self._of_engine) >= MOST_ENGINES:
            return
        if figures.get("max_model_len") == 0:  # vLLM serves no such length
            figures["max_model_len"] = None
        held = self._of_all if engine is None else self._of_engine.setdefault(engine, {})
        if "memory_gib" in figures and "memory_gib" in held:
            figures["memory_gib"] = min(figures["memory_gib"], held["memory_gib"])
        if "padding_layers" in figures:
            figures["padding_layers"] = (*held.get("padding_layers", ()), *figures["padding_layers"])[
                -MOST_PADDED_BUCKETS:
            ]
        held.update(figures)

    def engines(self) -> tuple[EngineCache, ...]:
        """One entry for engines with the same figures; empty where nothing was said of a KV cache."""
        if not self._speaks_of_cache:
            return ()
        alike: dict[EngineCache, list[str]] = {}
        for engine in sorted(self._of_engine, key=int) or ["0"]:
            figures = {**self._of_all, **self._of_engine.get(engine, {})}
            alike.setdefault(EngineCache(engines=(), **figures), []).append(engine)
        return tuple(replace(cache, engines=tuple(names)) for cache, names in alike.items())


def _engine_of(process: str) -> str | None:
    """The data parallel rank of the engine whose process this is, None where its lines are of no single one."""
    if engine := _ENGINE.match(process):
        return engine["rank"] or engine["old_rank"] or "0"
    worker = _DP_WORKER.match(process)
    return worker and worker["rank"]


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _counts(text: str) -> tuple[int, ...]:
    """A tuple as Python prints it."""
    return tuple(int(word) for word in text.replace(",", " ").split())
