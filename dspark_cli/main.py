"""The console entry: the commands, and the one place where errors become a line and an exit code."""

import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

import typer

from dspark_cli.commands.acceptance import acceptance_commands
from dspark_cli.commands.behind_dashes import TakesVllmArguments
from dspark_cli.commands.doctor import doctor
from dspark_cli.commands.inspect_cache import inspect_cache
from dspark_cli.commands.patches import patches
from dspark_cli.commands.probe import probe
from dspark_cli.commands.recommend import recommend
from dspark_cli.commands.serve import serve
from dspark_cli.commands.stress_shift import stress_shift
from dspark_cli.commands.tune import tune
from dspark_cli.errors import NotFit, OurBug, ToolError

DEBUG = "DSPARK_TOOL_DEBUG"

app = typer.Typer(
    name="dspark-tool",
    help="Inspect, explain, stress-test and launch vLLM speculative decoding with DFlash and DSpark drafters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=TakesVllmArguments)(serve)
app.command(cls=TakesVllmArguments, short_help="Recommend speculative settings, each with its reason.")(recommend)
app.add_typer(acceptance_commands, name="acceptance", short_help="Show how many drafts are accepted, by position.")
app.command(
    context_settings={
        "ignore_unknown_options": True,  # they are vllm serve's
        "help_option_names": ["--help"],  # -h would be found in the middle of vLLM's short options
    }
)(inspect_cache)
app.command(short_help="Find out whether restored prefixes hurt the drafts.")(probe)
app.command(cls=TakesVllmArguments, short_help="Find the best number of speculative tokens.")(tune)
app.command()(stress_shift)
app.command(short_help="Show which fixes this vLLM has, gets or lacks.")(patches)
app.command(short_help="Show what is installed, or what a server runs.")(doctor)


def _version(show: bool) -> None:
    if show:
        from dspark_cli import __version__

        typer.echo(f"dspark-tool {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a narrow encoding must cost a character, not the command
    try:
        app()
    except ToolError as error:
        _end_with(error)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
            from dspark_cli.report.console import abandon_stdout

            abandon_stdout()
            _end_with(NotFit(f"the result cannot be written ({error.strerror})", "give stdout a place with room"))
        what = f"dspark-tool itself failed ({type(error).__name__}: {error})"
        _end_with(OurBug(what, f"set {DEBUG}=1, run it again, and report the traceback"))


def _end_with(error: ToolError) -> NoReturn:
    from dspark_cli.report.console import show_error
    from dspark_cli.report.json_document import print_json_error

    show_error(error)
    own_arguments = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if "--json" in own_arguments:
        with suppress(ToolError):
            print_json_error(error)
    sys.exit(error.exit_code)
