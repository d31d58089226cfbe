"""Where output goes: results to stdout, messages to stderr. Text from outside is never read as markup."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from dspark_cli.errors import NotFit, ToolError

_BLANKS_AT_THE_END = re.compile(r" +$", re.MULTILINE)


class _Output(Console):
    """A console that a reader may leave (`| head`): what is left to print is dropped, and the exit code stays.

    Tables fill their last column with blanks; who pastes or compares output is better off without them.
    """

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return _BLANKS_AT_THE_END.sub("", super()._render_buffer(buffer))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _drop(sys.stderr if self.stderr else sys.stdout)


def result_console() -> Console:
    return _Output(highlight=False, markup=False, emoji=False)


def message_console() -> Console:
    return _Output(stderr=True, highlight=False, markup=False, emoji=False)


def write_result(text: str) -> None:
    """`text` to stdout, as it is.

    Raises:
        NotFit: stdout is closed or full.
    """
    if sys.stdout is None:
        raise NotFit("the result cannot be written: stdout is closed", "give stdout a place with room")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop(sys.stdout)
    except (OSError, ValueError, AttributeError) as error:
        _drop(sys.stdout)
        raise NotFit(f"the result cannot be written: {error}", "give stdout a place with room") from None


def abandon_stdout() -> None:
    """Print no more there: it is full."""
    _drop(sys.stdout)


def _drop(stream: TextIO | None) -> None:
    """Send the rest of `stream` nowhere, so that the interpreter's own flush at exit does not fail either."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
    """`text` as one line without control characters: logs and names must neither drive the terminal nor forge lines."""
    spaced = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in spaced)
