"""`dspark-tool inspect-cache`: the KV cache groups and capacity that a target and its drafter get, and why."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.commands.seconds import require_seconds
from dspark_cli.commands.severity import any_from, threshold_named
from dspark_cli.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from dspark_cli.findings.finding import Finding, Severity
    from dspark_cli.planning.deployment import Deployment


def inspect_cache(
    model: Annotated[str | None, typer.Option(help="The target: a model folder or a hub name.")] = None,
    draft: Annotated[str | None, typer.Option(help="The drafter. Without it: the target alone.")] = None,
    method: Annotated[str | None, typer.Option(help="dflash or dspark; as a rule the checkpoint says it.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Speculative tokens; as a rule the trained number.")] = None,
    platform: Annotated[str, typer.Option(help="auto (what vLLM runs on here), cuda or cpu, here or not.")] = "auto",
    gpu: Annotated[str | None, typer.Option(help="The GPU to plan for: a100, l40s, h100, h200, b200, ...")] = None,
    kv_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for the KV cache a GPU, such as 1GiB or 40000000000.")
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="All memory of a GPU; what the weights leave is planned for.")
    ] = None,
    draft_kv_dtype: Annotated[str | None, typer.Option(help="The drafter's own KV cache dtype.")] = None,
    keep_trailing_block: Annotated[bool, typer.Option(help="Plan with vLLM's disable_eagle_block_drop.")] = False,
    layout: Annotated[str | None, typer.Option(help="The KV cache layout, such as LBNHC or BLNHC.")] = None,
    vllm_args: Annotated[
        str | None, typer.Option(metavar="'ARGS'", help="A serve command or its arguments, pasted as one word.")
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CHANGE", help="Compare: no-drafter, layout, group-width, block-size=32, ..., or all."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running server, in place of models.")] = None,
    log: Annotated[Path | None, typer.Option(help="The log of a server, in place of models.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable with the server's API key.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long the server may take to answer.")] = 10.0,
    fail_on: Annotated[
        str, typer.Option(metavar="SEVERITY", help="Exit 1 from this severity on: info, warning, error; or never.")
    ] = "error",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    more_vllm_args: Annotated[
        list[str] | None, typer.Argument(metavar="[VLLM_OPTIONS]", help="Any other option is vllm serve's own.")
    ] = None,
) -> None:
    """Show KV cache groups, page sizes and capacity, and say why.

    No weights are loaded and no GPU is needed: vLLM builds both models empty and plans as at start-up. Every option
    of vllm serve is taken too: --max-model-len, --block-size, --tensor-parallel-size, --pipeline-parallel-size,
    --decode-context-parallel-size, --kv-cache-dtype, --no-enable-prefix-caching, --mamba-cache-mode,
    --disable-hybrid-kv-cache-manager, --gpu-memory-utilization, ...

    \b
    dspark-tool inspect-cache --model ./target --draft ./drafter --kv-memory 40GiB
    dspark-tool inspect-cache --model ./target --draft ./drafter --platform cuda --gpu h200
    dspark-tool inspect-cache --model ./target --draft ./drafter --kv-memory 40GiB --what-if all
    dspark-tool inspect-cache --url http://127.0.0.1:8000
    dspark-tool inspect-cache --kv-memory 40GiB --vllm-args 'vllm serve ./target -tp 2'
    """
    from dspark_cli.planning.inspection import Machine, inspect_deployment
    from dspark_cli.report.cache import show_cache_report
    from dspark_cli.report.console import show_note, waiting
    from dspark_cli.report.json_document import print_json
    from dspark_cli.sources.gpus import platform_here
    from dspark_cli.sources.vllm_install import find_vllm

    threshold = threshold_named(fail_on)
    if url is not None or log is not None:
        of_models = [model, draft, method, tokens, gpu, kv_memory, gpu_memory, draft_kv_dtype, layout, vllm_args]
        if (url is not None and log is not None) or any([*of_models, more_vllm_args, what_if, keep_trailing_block]):
            raise BadInput(
                "--url and --log ask what is there; the other options plan what could be",
                "give --url or --log alone, or --model and what to plan",
            )
        _inspect_server(url, log, timeout, api_key_env, json, threshold)
        return
    asked = _deployment(model, (draft, method, tokens), vllm_args, more_vllm_args or [])
    asked = asked.asking_for(
        kv_memory_bytes=None if kv_memory is None else parse_size(kv_memory),
        gpu_memory_bytes=None if gpu_memory is None else parse_size(gpu_memory),
        layout=layout,
        draft_kv_dtype=draft_kv_dtype,
        keep_trailing_block=keep_trailing_block,
    )
    install = find_vllm()
    here = platform_here(install)
    if here is None and platform == "auto" and gpu is None:
        show_note("no GPU is visible here, so the plan is for an H100; choose one with --gpu")
    machine = Machine.asked_for(platform, gpu, here=here)
    _show_notes(install.doubts)
    with waiting(f"asking the planner of vLLM {install.version} (its import takes 5 to 30 s)"):
        report = inspect_deployment(asked, machine, what_if or [], install)
    if json:
        print_json("inspect-cache", report)
    else:
        show_cache_report(report)
    _exit_on(report.findings, threshold)


def _inspect_server(
    url: str | None,
    log: Path | None,
    timeout: float,
    api_key_env: str | None,
    json: bool,
    threshold: "Severity | None",
) -> None:
    from dspark_cli.planning.inspection import judge_server
    from dspark_cli.report.cache_summary import show_server_cache
    from dspark_cli.report.console import waiting
    from dspark_cli.report.json_document import print_json
    from dspark_cli.sources.cache_log import read_cache_log
    from dspark_cli.sources.running_cache import read_running_cache

    if log is not None:
        summary = read_cache_log(log)
    else:
        require_seconds("--timeout", timeout)
        with waiting("asking the server"):
            summary = read_running_cache(str(url), timeout, api_key_env)
    judged = judge_server(summary)
    if json:
        print_json("inspect-cache", judged)
    else:
        show_server_cache(judged)
    _exit_on([finding for report in judged.reports for finding in report.findings], threshold)


def _exit_on(findings: "Sequence[Finding]", threshold: "Severity | None") -> None:
    if any_from(findings, threshold):
        raise typer.Exit(ExitCode.FINDINGS)


def parse_size(text: str) -> int:
    """Bytes of `1GiB`, `40 GB`, `1073741824`.

    Raises:
        BadInput: not a size above zero.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        size = int(TypeAdapter(ByteSize).validate_python(text))
    except (ValidationError, OverflowError):
        size = 0
    if size <= 0:
        raise BadInput(f"{text!r} is not a memory size", "give one like 1GiB, 40GB or 1073741824")
    return size


def _deployment(
    model: str | None, drafter: tuple[str | None, str | None, int | None], pasted: str | None, more: list[str]
) -> "Deployment":
    from dspark_cli.planning.deployment import deployment, named_model, split_command
    from dspark_cli.serving.speculative import speculate
    from dspark_cli.sources.checkpoint import check_target

    draft, method, tokens = drafter
    if draft is None and (method or tokens):
        raise BadInput("--method and --tokens are a drafter's, and there is no --draft", "give --draft DRAFTER")
    speculation = speculate(draft, method, tokens) if draft is not None else None
    _show_notes(speculation.doubts if speculation else ())
    asked = deployment(model, speculation, [*(split_command(pasted) if pasted is not None else []), *more])
    target = model if model is not None else named_model(asked.vllm_args)
    if target is not None:
        check_target(target)
    return asked


def _show_notes(notes: "list[str] | tuple[str, ...]") -> None:
    from dspark_cli.report.console import show_note

    for note in notes:
        show_note(note)
