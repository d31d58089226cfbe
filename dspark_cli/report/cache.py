"""The KV cache plan as a table a group and a line of capacity."""

from pydantic import ByteSize
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.cache_plan import CachePlan, KVCacheGroup
from dspark_cli.report.console import printable, result_console


def show_cache_plan(plan: CachePlan) -> None:
    console = result_console()
    layout = f", layout {plan.layout}" if plan.layout else ""
    console.print(Text(printable(f"KV cache groups on {plan.platform}{layout}")))
    console.print(_groups(plan.groups))
    console.print(Text(_capacity(plan)))


def _groups(groups: tuple[KVCacheGroup, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("group", justify="right")
    table.add_column("role")
    table.add_column("kind")
    for heading in ("layers", "block\ntokens", "page bytes\na layer", "padded\npage bytes", "bytes\na block"):
        table.add_column(heading, justify="right")
    for index, group in enumerate(groups):
        kind = group.kind if group.window is None else f"{group.kind} {group.window}"
        table.add_row(
            str(index),
            group.role,
            printable(kind),
            _layers(group),
            f"{group.block_tokens:,}",
            f"{group.page_bytes:,}",
            f"{group.padded_page_bytes:,}",
            f"{group.block_bytes:,}",
        )
    return table


def _layers(group: KVCacheGroup) -> str:
    """6, or 4+2 where the drafter's two share a group with the target's four."""
    of_target = len(group.layers) - group.draft_layers
    return f"{of_target}+{group.draft_layers}" if of_target and group.draft_layers else str(len(group.layers))


def _capacity(plan: CachePlan) -> str:
    block = f"{plan.pool_bytes_per_block:,} bytes of the pool a block"
    if plan.memory_bytes is None or plan.blocks is None:
        return f"{block}; capacity not computed: give --kv-memory SIZE"
    return (
        f"{ByteSize(plan.memory_bytes).human_readable()} at {block}: {plan.blocks:,} blocks\n"
        f"{plan.kv_tokens:,} KV tokens, {plan.full_sequences:.2f} sequences of {plan.max_model_len:,} tokens"
    )
