"""The KV cache plan for a reader: a row a group, capacity, where the bytes go, findings and comparisons."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pydantic import ByteSize
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.cache_bytes import CacheBytes
from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.planning.cache_report import CacheReport, WhatIf, capacity
from dspark_cli.report.console import printable, result_console
from dspark_cli.report.findings import show_findings

BAR_WIDTH = 60
PARTS = {
    "useful": ("useful: read at every step", "green"),
    "copies": ("copies on other ranks", "magenta"),
    "page_padding": ("page padding", "red"),
    "group_padding": ("group narrower than the pool's block", "yellow"),
    "window_blocks": ("kept beyond windows", "cyan"),
    "spare_states": ("states for drafts and prefix hits", "blue"),
    "last_block": ("end of the last block", "bright_black"),
}
SIGNS = "█▚▒░▞▤·"


def show_cache_report(report: CacheReport) -> None:
    console = result_console()
    plan = report.plan
    layout = f", layout {plan.layout}" if plan.layout else ""
    console.print(Text(printable(f"KV cache on {report.made_for}{layout}, by {report.vllm}")))
    for model, source in plan.sources:
        if source != "built":
            console.print(Text(printable(f"{model} {source}"), style="yellow"))
    console.print(groups_table(plan))
    console.print(Text(_capacity(report)))
    _show_bytes(console, plan, report.bytes)
    show_findings(console, report.findings, report.not_checked)
    if report.what_if:
        console.print(_what_if_table(plan, report.what_if))
        for line in _remarks(report.what_if):
            console.print(Text(printable(line), style="bright_black"))


def groups_table(plan: CachePlan) -> Table:
    """Groups that differ in their layers only share a row."""
    shown = [column for column in COLUMNS if column.shown_for(plan)]
    table = Table(box=None, pad_edge=False)
    table.add_column("group", justify="right", no_wrap=True)
    for column in shown:
        table.add_column(column.heading, justify="right" if column.is_number else "left", no_wrap=True)
    for numbers, group in _alike(plan.groups):
        table.add_row(numbers, *(column.cell(group) for column in shown))
    return table


@dataclass(frozen=True)
class _Column:
    heading: str
    cell: Callable[[KVCacheGroup], str]
    is_number: bool = True
    shown_for: Callable[[CachePlan], bool] = lambda plan: True


def _kind(group: KVCacheGroup) -> str:
    kind = group.kind.removesuffix(" attention").removesuffix(" window")
    return printable(kind if group.window is None else f"{kind} {group.window}")


COLUMNS = (
    _Column("role", lambda group: group.role, is_number=False),
    _Column("kind", _kind, is_number=False),
    _Column("layers", lambda group: _layers(group)),
    _Column("block\ntokens", lambda group: f"{group.block_tokens:,}"),
    _Column("page\na layer", lambda group: _bytes(group.page_bytes)),
    _Column(
        "padded\npage",
        lambda group: _bytes(group.padded_page_bytes),
        shown_for=lambda plan: any(group.page_bytes != group.padded_page_bytes for group in plan.groups),
    ),
    _Column("bytes\na block", lambda group: _bytes(group.block_bytes)),
    _Column("blocks\na seq.", lambda group: f"{group.blocks_per_sequence:,}"),
    _Column(
        "draft\nflag",
        lambda group: "yes" if group.draft_flag else "",
        is_number=False,
        shown_for=lambda plan: any(group.draft_flag for group in plan.groups),
    ),
    _Column(
        "ranks\nhold",
        lambda group: "parts" if group.sharded else "all",
        is_number=False,
        shown_for=lambda plan: plan.policy.decode_context_parallel > 1,
    ),
)


def _alike(groups: Sequence[KVCacheGroup]) -> Iterator[tuple[str, KVCacheGroup]]:
    """("0-3", the first of them) for neighbours that read the same."""

    def looks(numbered: tuple[int, KVCacheGroup]) -> tuple[object, ...]:
        fields = vars(numbered[1])
        return (*(value for name, value in fields.items() if name != "layers"), len(numbered[1].layers))

    for _, same in groupby(enumerate(groups), key=looks):
        run = list(same)
        first, last = run[0], run[-1]
        yield str(first[0]) if first[0] == last[0] else f"{first[0]}-{last[0]}", first[1]


def _layers(group: KVCacheGroup) -> str:
    """6, or 4+2 where the drafter's two share a group with the target's four."""
    of_target = len(group.layers) - group.draft_layers
    return f"{of_target}+{group.draft_layers}" if of_target and group.draft_layers else str(len(group.layers))


def _capacity(report: CacheReport) -> str:
    plan = report.plan
    lines = [f"{plan.pool_bytes_per_block:,} bytes of the pool a block"]
    for stage in plan.stages:
        lines.append(f"stage {stage.stage}: {sum(stage.layers)} layers, {stage.pool_bytes_per_block:,} bytes a block")
    if plan.blocks is None:
        lines.append(f"{plan.tokens_per_gib:,.0f} KV tokens a GiB; for capacity give --kv-memory SIZE")
    else:
        bound = "at most " if report.memory_estimated else ""
        memory = f"{_size(plan.memory_bytes)} at " if plan.memory_bytes is not None else ""
        lines[0] = f"{bound}{memory}{lines[0]}: {plan.blocks:,} blocks"
        lines.append(
            f"{plan.kv_tokens:,} KV tokens, {_rounded_down(plan.full_sequences)} sequences of"
            f" {plan.max_model_len:,} tokens"
        )
    if report.memory_estimated and plan.weight_bytes:
        lines.append(
            f"(an upper bound: the GPU's memory less {_size(plan.weight_bytes)} of weights; activations\n"
            "and graphs take more, which only a run can tell; to be exact give --kv-memory)"
        )
    if report.alone is not None:
        lines.append(_cost_of_drafter(plan, report.alone))
    return "\n".join(lines)


def _cost_of_drafter(plan: CachePlan, alone: CachePlan) -> str:
    groups = f"{len(alone.groups)} -> {len(plan.groups)} groups"
    if plan.kv_tokens is None or alone.kv_tokens is None or alone.kv_tokens == 0:
        share = 1 - plan.tokens_per_gib / alone.tokens_per_gib
        return f"the drafter takes {share:.1%} of the capacity ({groups})"
    share = 1 - plan.kv_tokens / alone.kv_tokens
    return f"without the drafter: {alone.kv_tokens:,} KV tokens; it takes {share:.1%} ({groups})"


def _show_bytes(console: Console, plan: CachePlan, parts: CacheBytes) -> None:
    each = parts.total / plan.max_model_len
    console.print(
        Text(f"\nA sequence of {plan.max_model_len:,} tokens takes {parts.total:,} bytes, {each:,.0f} a token:")
    )
    shares = {name: getattr(parts, name) / max(parts.total, 1) for name in PARTS}
    bar = Text()
    for (name, (_, color)), sign in zip(PARTS.items(), SIGNS, strict=True):
        bar.append(sign * _cells(shares, name), style=color)
    console.print(bar)
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        table.add_column()
    for _ in range(2):
        table.add_column(justify="right")
    for (name, (words, color)), sign in zip(PARTS.items(), SIGNS, strict=True):
        if getattr(parts, name):
            table.add_row(Text(sign, style=color), words, f"{getattr(parts, name):,}", f"{shares[name]:.1%}")
    console.print(table)


def _cells(shares: dict[str, float], name: str) -> int:
    """Cells of a part, so that all of them together fill the bar exactly."""
    names = list(shares)
    before = sum(shares[other] for other in names[: names.index(name)])
    cells = round((before + shares[name]) * BAR_WIDTH) - round(before * BAR_WIDTH)
    return min(max(cells, 0), BAR_WIDTH)


def _what_if_table(plan: CachePlan, compared: Sequence[WhatIf]) -> Table:
    table = Table(box=None, pad_edge=False, title="\nWhat if", title_justify="left", title_style="bold")
    table.add_column("change", overflow="fold")
    table.add_column("groups", justify="right")
    table.add_column("bytes\na block", justify="right")
    with_memory = plan.kv_tokens is not None
    table.add_column("KV tokens" if with_memory else "KV tokens\na GiB", justify="right")
    table.add_column("against\nas asked", justify="right")
    rows = [*compared, WhatIf("(as asked)", plan, None)]
    for one in _without_repeats(rows, plan):
        table.add_row(*_row(one, plan))
    return table


def _remarks(compared: Sequence[WhatIf]) -> Iterator[str]:
    """How to get what was compared, and why the rest was refused."""
    changes = {change.partition("=")[0] for one in compared if one.plan for change in one.change.split(",")}
    if "layout" in changes:
        yield "layout: start the server with VLLM_KV_CACHE_LAYOUT=NAME"
    if "group-width" in changes:
        yield "group-width: vLLM has no option for it; it shows what another grouping would win"
    for reason, same in groupby((one for one in compared if one.refused), _reason):
        yield f"{', '.join(one.change for one in same)}: {reason}"


def _reason(one: WhatIf) -> str:
    """The same for values that are refused alike."""
    value = one.change.rpartition("=")[2]
    return (one.refused or "").replace(value, "...") if len(value) > 1 else one.refused or ""


def _without_repeats(compared: Sequence[WhatIf], asked: CachePlan) -> Iterator[WhatIf]:
    """Values of one setting that make no difference to each other share a row."""

    def result(one: WhatIf) -> tuple[object, ...]:
        plan = one.plan
        return (
            one.change.partition("=")[0],
            plan and (len(plan.groups), plan.pool_bytes_per_block, capacity(plan, asked)),
        )

    for _, same in groupby(
        sorted(compared, key=lambda one: (-(capacity(one.plan, asked) if one.plan else -1), one.change)), result
    ):
        first, *rest = same
        values = " ".join(one.change.partition("=")[2] for one in rest)
        yield replace(first, change=f"{first.change} {values}".rstrip())


def _row(one: WhatIf, asked: CachePlan) -> tuple[str, ...]:
    if one.plan is None:
        return printable(one.change), "", "", "refused", ""
    tokens = capacity(one.plan, asked)
    return (
        printable(one.change),
        str(len(one.plan.groups)),
        _bytes(one.plan.pool_bytes_per_block),
        f"{tokens:,.0f}",
        "" if one.plan is asked else _share(tokens, capacity(asked, asked), "{:+.1%}"),
    )


def _share(tokens: float, of: float, form: str) -> str:
    """By how much one is more than the other; nothing fits in nothing."""
    return form.format(tokens / of - 1) if of else "-"


def _rounded_down(sequences: float | None) -> str:
    """7.996 sequences are not eight."""
    return f"{math.floor((sequences or 0) * 100) / 100:.2f}"


def _bytes(count: int) -> str:
    """Exact: in KiB where it is large and whole."""
    return f"{count >> 10:,}K" if count >= 1 << 20 and count % 1024 == 0 else f"{count:,}"


def _size(count: int) -> str:
    return ByteSize(count).human_readable(separator=" ")
