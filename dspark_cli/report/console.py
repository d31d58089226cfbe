"""Where output goes: results to stdout, messages to stderr. Text from outside is never read as markup."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from dspark_cli.errors import ToolError


def result_console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def message_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def show_error(error: ToolError) -> None:
    console = message_console()
    console.print(Text.assemble(("error: ", "bold red"), printable(error.what)), soft_wrap=True)
    console.print(Text.assemble(("next: ", "bold"), printable(error.next_step)), soft_wrap=True)


def show_note(note: str) -> None:
    message_console().print(Text.assemble(("note: ", "bold yellow"), printable(note)), soft_wrap=True)


@contextmanager
def waiting(for_what: str) -> Iterator[None]:
    """A spinner on a terminal, one line elsewhere, for work of more than two seconds."""
    console = message_console()
    if not console.is_terminal:
        console.print(f"{for_what} ...", soft_wrap=True)
        yield
        return
    with console.status(Text(for_what)):
        yield


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar over `total` steps; the function it gives marks one as done. One line without a terminal."""
    from rich.progress import Progress

    console = message_console()
    if not console.is_terminal:
        console.print(f"{what} ...", soft_wrap=True)
        yield lambda: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def printable(text: str) -> str:
    """`text` without control characters: logs and model names must not drive the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
