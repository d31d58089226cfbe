"""Draft context in words and tables: what a server does with restored tokens, and how drafts fare on them."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from dspark_cli.facts.draft_context import OFF, DraftContext, ServerContext
from dspark_cli.profiling.acceptance_report import RestoredAcceptance
from dspark_cli.report.acceptance_words import length_interval, percent, short

LONGEST_REASON = 300
ROWS_DO_NOT_COMPARE = (
    "each row has other requests, so rows do not compare: dspark-tool probe sends the same ones, cold and restored"
)
HEADINGS = ("restored tokens", "draft steps", "length", "95% interval", "position 0")


def context_line(context: DraftContext) -> str:
    """Policy, state and counters in one line."""
    return f"draft context: policy {short(context.policy) or OFF}, {_state(context)}"


def context_lines(servers: Sequence[ServerContext]) -> Iterator[str]:
    """A line for each of `servers`, with its name where there are several."""
    for server in servers:
        where = f"{short(server.where)}: " if len(servers) > 1 else ""
        again = "; the server was restarted in between, and this is all since" if server.restarted else ""
        yield f"{where}{context_line(server.context)}{again}"
        if server.context.not_counted is not None:
            yield f"{where}no acceptance by restored tokens: {short(server.context.not_counted, LONGEST_REASON)}"


def restored_rows(by_restored: Sequence[RestoredAcceptance]) -> list[list[str]]:
    """Cells under HEADINGS."""
    return [
        [
            each.name,
            f"{each.profile.drafts:,}",
            f"{each.profile.mean_acceptance_length:.2f}",
            length_interval(each.profile),
            percent(each.profile.positions[0].rate if each.profile.positions else None),
        ]
        for each in by_restored
    ]


def restored_table(by_restored: Sequence[RestoredAcceptance]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in restored_rows(by_restored):
        table.add_row(*row)
    return table


def _state(context: DraftContext) -> str:
    if not context.active:
        reasons = "; ".join(context.inactive_reasons[:3])
        return f"not active: {short(reasons or 'nothing was drafted yet', LONGEST_REASON)}"
    counted = context.counters
    fates = f"{counted.valid_tokens:,} valid, {counted.hidden_tokens:,} hidden, {counted.zeroed_tokens:,} zeroed"
    return f"active; {counted.restored_tokens:,} tokens restored in {counted.admissions:,} admissions: {fates}"
