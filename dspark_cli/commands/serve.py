"""`dspark-tool serve`: start `vllm serve` with the drafter, and say what it is doing."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.commands.workload import (
    Concurrency,
    Latency,
    Profile,
    SharedPrefix,
    Throughput,
    measured,
    workload_of,
)
from dspark_cli.errors import NotFit
from dspark_cli.sources.user_folders import user_folder

if TYPE_CHECKING:
    from dspark_cli.report.serve import StartupDisplay
    from dspark_cli.serving.command import ServeCommand
    from dspark_cli.serving.verifying_watcher import VerifyingWatcher


def serve(
    model: Annotated[str, typer.Argument(help="The target: a model folder or a hub name.")],
    draft: Annotated[str, typer.Option(help="The drafter: a model folder or a hub name.")],
    method: Annotated[str | None, typer.Option(help="dflash or dspark; as a rule the checkpoint says it.")] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Speculative tokens; as a rule the trained number.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the command and stop.")] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The server's log, overwritten; else a new file in the state folder."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Once ready, leave the server's log in its file.")] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Answer GET /dspark/status: what runs in every worker. Read-only."),
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
    concurrency: Concurrency = None,
    shared_prefix: SharedPrefix = None,
    latency: Latency = False,
    throughput: Throughput = False,
    profile: Profile = None,
    allow_conflicts: Annotated[
        bool, typer.Option("--allow-conflicts", help="Start even what recommend refuses.")
    ] = False,
    vllm_args: Annotated[
        list[str] | None, typer.Argument(metavar="-- VLLM_ARGS", help="Your own arguments of vllm serve; they win.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
) -> None:
    """Start vLLM for a target with a drafter.

    The settings are those of dspark-tool recommend, which says why; your own win. The patches of dspark-tool that
    apply to this vLLM are added in its memory (dspark-tool patches lists them); nothing of it is changed on disk.
    Exit code 3 where one that is needed does not fit, or settings cannot work together; else the server's own. Ctrl-C
    and SIGTERM are passed on to it.

    \b
    dspark-tool serve ./target --draft ./drafter
    dspark-tool serve ./target --draft ./drafter --dry-run -- --port 8001
    dspark-tool serve ./target --draft ./drafter --concurrency 32 --shared-prefix 2000
    dspark-tool serve ./target --draft ./drafter --draft-context off
    dspark-tool serve ./target --draft ./drafter -- \\
        --speculative-config '{"attention_backend": "FLASH_ATTN"}'
    """
    from dspark_cli.patches.found_vllm import installed_vllm
    from dspark_cli.recommending.gather import Asked
    from dspark_cli.recommending.recommend import recommend_for, require_no_conflict
    from dspark_cli.recommending.rules.draft_context import ID as DOES_NOT_FIT
    from dspark_cli.report.console import show_note
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.patched_runtime import runtime_in_a_line
    from dspark_cli.report.recommendation import show_traps
    from dspark_cli.report.serve import StartupDisplay, show_command, show_end
    from dspark_cli.serving.command import serve_command
    from dspark_cli.serving.own_title import hide_own_arguments
    from dspark_cli.serving.patched_runtime import Wanted, asked_policy
    from dspark_cli.serving.speculative import speculate, take_speculative_config
    from dspark_cli.sources.checkpoint import check_target
    from dspark_cli.sources.vllm_install import find_vllm

    hide_own_arguments()
    check_target(model)
    install = find_vllm()
    speculation = speculate(draft, method, tokens)
    wanted = Wanted(draft_context, tuple(without or ()), allow_unpatched)
    rest, given = take_speculative_config(vllm_args or [])
    tuned, counted = measured(profile)
    asked = Asked(
        model,
        draft,
        method,
        tokens,
        tuple(rest),
        given,
        workload_of(concurrency, shared_prefix, latency, throughput),
        asked_policy(draft_context),
        profile=tuned,
        counted=counted,
        without_gpu=True,
    )
    recommended = recommend_for(asked, installed_vllm(install), install.distribution)
    # Whether the draft context fits is judged below, with the user's --without and --allow-unpatched.
    recommended = replace(recommended, refused=tuple(f for f in recommended.refused if f.id != DOES_NOT_FIT))
    if not allow_conflicts:
        require_no_conflict(recommended)
    command = serve_command(
        install, model, speculation.with_settings(recommended.speculative_config), recommended.vllm_args, status, wanted
    )
    for doubt in [*install.doubts, *command.runtime.notes, *command.notes]:
        show_note(doubt)
    show_traps(recommended)
    if dry_run:
        show_note(f"added to vLLM: {runtime_in_a_line(command.runtime)}; settings and reasons: dspark-tool recommend")
        if json:
            print_json("serve", command.as_shown())
        else:
            show_command(command, dry_run=True)
        return
    log = log_file or _default_log()
    show_command(command, dry_run=False)
    display = StartupDisplay(log, show_server_log=not quiet)
    watcher = _verifying(command, display, status)
    ended = replace(display.ended(_run(command, log, display, watcher)), verification=watcher.result())
    show_end(ended)
    if json:
        print_json("serve", ended)
    raise typer.Exit(ended.exit_code)


def _run(command: "ServeCommand", log: Path, display: "StartupDisplay", watcher: "VerifyingWatcher") -> int:
    from dspark_cli.serving.server import run_server

    _check_writable(log)
    with display:
        return run_server(command.argv, command.added_environment, log, watcher, command.secrets)


def _verifying(command: "ServeCommand", display: "StartupDisplay", status: bool) -> "VerifyingWatcher":
    from dspark_cli.report.console import show_note
    from dspark_cli.report.start_verification import show_verification
    from dspark_cli.serving.asked_of import asked_of, certificate_of, why_no_api
    from dspark_cli.serving.secrets import api_keys
    from dspark_cli.serving.verification import Question
    from dspark_cli.serving.verifying_watcher import VerifyingWatcher

    no_api = why_no_api(command.argv)
    if no_api:
        show_note(f"{no_api}; what its workers run is verified on the node with rank 0, with --status there")
    keys = api_keys(command.argv, command.environment)
    question = Question(asked_of(command), status, keys[0] if keys else None)
    return VerifyingWatcher(display, question, certificate_of(command.argv), no_api, show_verification)


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
