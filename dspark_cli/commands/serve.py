"""`dspark-tool serve`: start `vllm serve` with the drafter, and say what it is doing."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import NotFit
from dspark_cli.sources.user_folders import user_folder

if TYPE_CHECKING:
    from dspark_cli.report.serve import StartupDisplay
    from dspark_cli.serving.command import ServeCommand


def serve(
    model: Annotated[str, typer.Argument(help="The target: a model folder or a hub name.")],
    draft: Annotated[str, typer.Option(help="The drafter: a model folder or a hub name.")],
    method: Annotated[str | None, typer.Option(help="dflash or dspark; as a rule the checkpoint says it.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Speculative tokens; as a rule the trained number.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the command and stop.")] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The server's log, overwritten; else a new file in the state folder."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Once ready, leave the server's log in its file.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Answer GET /dspark/status, for inspect-cache --url. Read-only.")
    ] = False,
    draft_context: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="What the drafter sees of restored tokens: validity (what it wrote itself; the default), restored"
            " (nothing of whole blocks), or off (everything, as vLLM does).",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="PATCH", help="Leave one patch out; may be given again.")
    ] = None,
    allow_unpatched: Annotated[
        bool, typer.Option("--allow-unpatched", help="Start even where a patch that this start needs does not fit.")
    ] = False,
    vllm_args: Annotated[
        list[str] | None, typer.Argument(metavar="-- VLLM_ARGS", help="Any arguments of vllm serve, as they are.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
) -> None:
    """Start vLLM for a target with a drafter.

    Returns the server's own exit code. Ctrl-C and SIGTERM are passed on to it. The patches of dspark-tool that apply
    to this vLLM are added in its memory (dspark-tool patches lists them); nothing of it is changed on disk. Exit code
    3 where one that is needed does not fit.

    \b
    dspark-tool serve ./target --draft ./drafter
    dspark-tool serve ./target --draft ./drafter --dry-run -- --port 8001
    dspark-tool serve ./target --draft ./drafter --draft-context off
    dspark-tool serve ./target --draft ./drafter -- \\
        --speculative-config '{"attention_backend": "FLASH_ATTN"}'
    """
    from dspark_cli.report.console import show_note
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.serve import StartupDisplay, show_command, show_end
    from dspark_cli.serving.command import serve_command
    from dspark_cli.serving.patched_runtime import Wanted
    from dspark_cli.serving.speculative import speculate
    from dspark_cli.sources.checkpoint import check_target
    from dspark_cli.sources.vllm_install import find_vllm

    check_target(model)
    install = find_vllm()
    speculation = speculate(draft, method, tokens)
    wanted = Wanted(draft_context, tuple(without or ()), allow_unpatched)
    command = serve_command(install, model, speculation, vllm_args or [], status, wanted)
    for doubt in [*speculation.doubts, *install.doubts, *command.runtime.notes]:
        show_note(doubt)
    if dry_run:
        if json:
            print_json("serve", command.as_shown())
        else:
            show_command(command, dry_run=True)
        return
    log = log_file or _default_log()
    show_command(command, dry_run=False)
    display = StartupDisplay(log, show_server_log=not quiet)
    ended = display.ended(_run(command, log, display))
    show_end(ended)
    if json:
        print_json("serve", ended)
    raise typer.Exit(ended.exit_code)


def _run(command: "ServeCommand", log: Path, display: "StartupDisplay") -> int:
    from dspark_cli.serving.server import run_server

    _check_writable(log)
    with display:
        return run_server(command.argv, command.added_environment, log, display)


def _check_writable(log: Path) -> None:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and not (log.is_file() or log.is_char_device()):
            raise NotFit(f"the log {log} is no file", "give another: --log-file FILE")
        with log.open("ab"):
            pass
    except OSError as error:
        raise NotFit(f"the log {log} cannot be written: {error.strerror}", "give another: --log-file FILE") from None


def _default_log() -> Path:
    name = f"serve-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    return user_folder("XDG_STATE_HOME", ".local/state") / name
