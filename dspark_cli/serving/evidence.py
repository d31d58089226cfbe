"""What a running server says of the settings that were asked for, from each of its sources."""

from collections.abc import Iterator, Mapping

from dspark_cli.draft_context.policy import Policy
from dspark_cli.facts import start_verification as names
from dspark_cli.facts.asked import ALL_ON, ENGINE_CORE, SPECULATIVE_NAMES, Asked
from dspark_cli.facts.cache_plan import CachePlan
from dspark_cli.facts.engine_configuration import EngineConfiguration, Setting
from dspark_cli.facts.start_verification import Said, Source
from dspark_cli.serving.patched_runtime import CONTEXT_OF
from dspark_cli.sources.cache_metrics import summary_of_metrics
from dspark_cli.sources.server_metrics import Scrape
from dspark_cli.sources.server_status import ServerStatus
from dspark_cli.sources.startup_log import WAITING, StartupLog
from dspark_cli.sources.status_draft_context import ToldWorker

POSITION_METRIC = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
FIELDS = {
    names.PREFIX_CACHING: "prefix_caching",
    names.BLOCK_TOKENS: "block_tokens",
    names.MODEL_LEN: "max_model_len",
    names.BATCHED_TOKENS: "max_batched_tokens",
    names.SEQUENCES: "max_sequences",
}
"""Settings, and the fields of an EngineConfiguration and of an EngineCache."""
CONTEXT_ROWS = frozenset(CONTEXT_OF.values())
"""Patches that the log tells as the draft context's policy."""
APPLIED = "applied"


def said_by_status(status: ServerStatus, asked: Asked) -> Iterator[Said]:
    told = status.draft_context
    workers = told.workers if told is not None and told.unsupported is None else ()
    for number, engine in enumerate(status.configurations):
        name = f"engine {number}"
        yield from _of_engine(engine, name, asked)
        yield from _of_workers([worker for worker in workers if worker.engine == number], engine, name, asked)
    plans = [worker.plan for worker in status.cache.workers if worker.plan is not None]
    if plans:
        yield Said(names.DRAFT_LAYERS, _draft_layers(plans, asked), "engine 0", Source.STATUS)


def _draft_layers(plans: list[CachePlan], asked: Asked) -> Setting:
    """A number where one was asked for. With pipeline stages all of them are the last one's."""
    most = max(sum(group.draft_layers for group in plan.groups) for plan in plans)
    if isinstance(asked.settings.get(names.DRAFT_LAYERS), int):
        return most
    return names.THERE if most else names.MISSING


def _of_engine(engine: EngineConfiguration, name: str, asked: Asked) -> Iterator[Said]:
    for key, value in (engine.speculative or {}).items():
        if key != "attention_backend":  # the workers say what it became
            yield Said(SPECULATIVE_NAMES.get(key, key), value, name, Source.STATUS)
    if engine.speculative == {}:
        yield Said(names.METHOD, None, name, Source.STATUS)
    for setting, field in FIELDS.items():
        if (known := getattr(engine, field)) is not None:
            yield Said(setting, known, name, Source.STATUS)
    if engine.drafter_max_model_len is not None and engine.max_model_len is not None:
        covered = engine.drafter_max_model_len >= engine.max_model_len
        yield Said(names.DRAFTER_LEN, names.COVERED if covered else engine.drafter_max_model_len, name, Source.STATUS)
    if engine.unsupported is None:
        yield _patches(asked.patches.get(ENGINE_CORE, ()), engine.patches, {}, f"{name} core", Source.STATUS)


def _of_workers(workers: list[ToldWorker], engine: EngineConfiguration, name: str, asked: Asked) -> Iterator[Said]:
    for worker in workers:
        who = f"{name} rank {worker.rank}"
        yield Said(names.DRAFT_CONTEXT, _context(worker, asked), who, Source.STATUS)
        if worker.model_runner is not None:
            expected = asked.patches.get(worker.model_runner, ())
            yield _patches(expected, worker.patches, worker.failed_patches, who, Source.STATUS)
        else:
            reason = worker.inactive_reason or "an older dspark-tool"
            yield Said(names.PATCHES, f"unknown ({reason})", who, Source.STATUS)
        if worker.draft_tokens is not None:
            yield Said(names.TOKENS, worker.draft_tokens, who, Source.STATUS)
        if worker.draft_backends:
            yield Said(names.DRAFT_BACKEND, ", ".join(worker.draft_backends), who, Source.STATUS)
    if workers and engine.workers is not None and len(workers) < engine.workers:
        silent = f"{engine.workers - len(workers)} of {engine.workers} workers of {name}"
        yield Said(names.DRAFT_CONTEXT, "no answer", silent, Source.STATUS)


def _context(worker: ToldWorker, asked: Asked) -> str:
    """A context that is off as asked, or left out for the runner that vLLM chose, is as asked."""
    off = worker.policy == asked.draft_context == Policy.OFF
    left_out = worker.model_runner is not None and CONTEXT_ROWS.isdisjoint(asked.patches.get(worker.model_runner, ()))
    if worker.inactive_reason is None or off:
        return worker.policy
    return asked.draft_context if left_out else f"not at work ({worker.inactive_reason})"


def _patches(
    expected: tuple[str, ...], there: tuple[str, ...], failed: Mapping[str, str], who: str, source: Source
) -> Said:
    missing = [f"{name} ({failed[name]})" if name in failed else name for name in expected if name not in there]
    return Said(names.PATCHES, f"without {', '.join(missing)}" if missing else ALL_ON, who, source)


def said_by_metrics(scrape: Scrape) -> Iterator[Said]:
    """Raises CannotSay as `summary_of_metrics`."""
    positions: dict[str, int] = {}
    for sample in scrape.named(POSITION_METRIC):
        engine = sample.labels.get("engine", "0")
        positions[engine] = positions.get(engine, 0) + 1
    for engine, count in positions.items():
        yield Said(names.TOKENS, count, f"engine {engine}", Source.METRICS)
    for cache in summary_of_metrics(scrape, "").engines:
        for setting, field in FIELDS.items():
            if (known := getattr(cache, field, None)) is not None:
                yield Said(setting, known, f"engine {', '.join(cache.engines)}", Source.METRICS)


def said_by_log(log: StartupLog, asked: Asked) -> Iterator[Said]:
    for speaker, engine in log.engines.items():
        told: dict[str, Setting] = {
            names.METHOD: engine.method,
            names.DRAFTER: engine.drafter,
            names.TOKENS: engine.tokens,
            names.MODEL_LEN: engine.max_model_len,
            names.PREFIX_CACHING: engine.prefix_caching,
        }
        for setting, value in told.items():
            if value is not None:
                yield Said(setting, value, speaker, Source.LOG)
    if log.no_prefix_caching:
        yield Said(names.PREFIX_CACHING, False, "the engine", Source.LOG)
    if log.no_schedule:
        yield Said(names.SCHEDULE, None, "the engine", Source.LOG)
    yield from _contexts_in(log, asked)
    yield from _patches_in(log, asked)


def _contexts_in(log: StartupLog, asked: Asked) -> Iterator[Said]:
    states = {
        speaker: policy if state == WAITING else f"not at work ({state})"
        for speaker, (policy, state) in log.contexts.items()
    }
    if not states:
        if asked.draft_context == Policy.OFF and log.workers > 0:
            yield Said(names.DRAFT_CONTEXT, str(Policy.OFF), "every worker", Source.LOG)
        return
    all_are_here = asked.all_on_this_host and log.workers > 0
    for speaker, state in states.items():
        if all_are_here or state != asked.draft_context:
            yield Said(names.DRAFT_CONTEXT, state, speaker, Source.LOG)
    missing = log.workers - len(states)
    if all_are_here and missing > 0:
        yield Said(names.DRAFT_CONTEXT, "not on", f"{missing} of {log.workers} workers", Source.LOG)


def _patches_in(log: StartupLog, asked: Asked) -> Iterator[Said]:
    """What failed; that all is on only where it is sure which processes need which patch, and each says so."""
    for speaker, plugin in log.lost_plugins.items():
        yield Said(names.PATCHES, f"without the plugin {plugin}", speaker, Source.LOG)
    for name, told in log.patches.items():
        for speaker, how in told.items():
            if how != APPLIED:
                yield Said(names.PATCHES, f"without {name} ({how.partition(': ')[2]})", speaker, Source.LOG)
    if asked.all_on_this_host and log.workers > 0 and _all_on(log, asked):
        yield Said(names.PATCHES, ALL_ON, "every process", Source.LOG)


def _all_on(log: StartupLog, asked: Asked) -> bool:
    of_runners = [set(of_place) - CONTEXT_ROWS for place, of_place in asked.patches.items() if place != ENGINE_CORE]
    if sum(map(bool, of_runners)) > 1:
        return False  # which of the two runs is not in the log
    processes = {name: log.workers for of_runner in of_runners for name in of_runner}
    processes |= dict.fromkeys(asked.patches.get(ENGINE_CORE, ()), log.cores)
    on = {name: sum(how == APPLIED for how in log.patches.get(name, {}).values()) for name in processes}
    return all(on[name] >= count for name, count in processes.items())
