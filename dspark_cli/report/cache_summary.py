"""A running server's KV cache for a reader: the plans where it told them, else the figures that there are."""

from collections.abc import Iterator

from pydantic import ByteSize
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.cache_summary import CacheSummary, EngineCache
from dspark_cli.planning.cache_report import ServerCacheReport
from dspark_cli.report.cache import show_cache_report
from dspark_cli.report.console import printable, result_console
from dspark_cli.report.draft_context import context_line


def show_server_cache(judged: ServerCacheReport) -> None:
    for report in judged.reports:
        show_cache_report(report)
    _show_summary(judged.summary)


def _show_summary(summary: CacheSummary) -> None:
    console = result_console()
    for engine in summary.engines:
        names = f", engine {', '.join(engine.engines)}" if engine.engines else ""
        console.print(Text(printable(f"KV cache of {summary.where}{names}, as {summary.source} says")))
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, value in _known(engine):
            table.add_row(name, printable(value))
        console.print(table)
    if summary.draft_context is not None:
        console.print(Text(context_line(summary.draft_context)))
    for note in summary.notes:
        console.print(Text(printable(f"note: {note}"), style="yellow"))
    for unknown in summary.unknown:
        console.print(Text(printable(f"not known: {unknown.what}; {unknown.how}"), style="bright_black"))


def _known(engine: EngineCache) -> Iterator[tuple[str, str]]:
    facts: list[tuple[str, object]] = [
        ("blocks", engine.blocks),
        ("blocks that would fit", engine.blocks_that_would_fit),
        ("block tokens", engine.block_tokens),
        ("block tokens of each group", ", ".join(f"{tokens:,}" for tokens in engine.group_block_tokens) or None),
        ("tokens between prefix hits", engine.hit_alignment_tokens),
        ("KV tokens", engine.kv_tokens),
        ("sequences of full length", engine.full_sequences),
        ("max model length", engine.max_model_len),
        ("reduced to fit from", engine.fitted_from),
        ("memory asked for", engine.memory_bytes and ByteSize(engine.memory_bytes).human_readable(separator=" ")),
        ("memory", None if engine.memory_gib is None else f"{engine.memory_gib:g} GiB"),
        ("layout", engine.layout),
        ("KV dtype", engine.kv_dtype),
        ("prefix caching", _on_or_off(engine.prefix_caching)),
        ("hybrid manager", _on_or_off(engine.hybrid_manager)),
        ("block raised to, for states", engine.raised_block_tokens),
        ("padding of states' pages", _percent(engine.state_padding_percent)),
    ]
    for padding in engine.padding_layers:
        facts.append(("layers added for width", f"{padding.layers} (at most {padding.waste_percent:g} % wasted)"))
    for name, value in facts:
        if value is not None:
            yield name, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:g} %"


def _on_or_off(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"
