"""`dspark-tool doctor`: what is installed here, and what is missing for which command."""

import platform
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import ExitCode, NotFit, ToolError

if TYPE_CHECKING:
    from dspark_cli.facts.environment import Environment, VllmFacts


def doctor(
    url: Annotated[
        str | None, typer.Option(help="Ask a server that runs with dspark-tool serve --status, not this machine.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable with the server's API key.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long the server may take to answer.")] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what is installed and what is missing, here or in a running server.

    Exit code 1 where a command cannot run, or something that the server was started with does not work.

    \b
    dspark-tool doctor
    dspark-tool doctor --url http://127.0.0.1:8000
    """
    from dspark_cli.facts.environment import Diagnosis, readiness
    from dspark_cli.report.doctor import show_diagnosis
    from dspark_cli.report.json_document import print_json

    if url is not None:
        _ask_server(url, api_key_env, timeout, json)
        return
    here = _examine()
    diagnosis = Diagnosis(here, readiness(here))
    if json:
        print_json("doctor", diagnosis)
    else:
        show_diagnosis(diagnosis)
    if any(command.missing for command in diagnosis.commands):
        raise typer.Exit(ExitCode.FINDINGS)


def _ask_server(url: str, api_key_env: str | None, timeout: float, json: bool) -> None:
    from dspark_cli.commands.seconds import require_seconds
    from dspark_cli.report.console import waiting
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.server_diagnosis import show_server_diagnosis
    from dspark_cli.sources.server_status import read_diagnosis

    require_seconds("--timeout", timeout)
    with waiting("asking the server"):
        found = read_diagnosis(url, timeout, api_key_env)
    if json:
        print_json("doctor", found)
    else:
        show_server_diagnosis(found)
    if found.problems:
        raise typer.Exit(ExitCode.FINDINGS)


def _examine() -> "Environment":
    from dspark_cli.facts.environment import Environment
    from dspark_cli.sources.gpus import read_gpus
    from dspark_cli.sources.vllm_install import distribution_version

    return Environment(
        python=platform.python_version(),
        torch=distribution_version("torch"),
        triton=distribution_version("triton"),
        vllm=_vllm(),
        gpus=read_gpus(),
    )


def _vllm() -> "VllmFacts | None":
    from dspark_cli.facts.environment import VllmFacts
    from dspark_cli.report.console import waiting
    from dspark_cli.sources.vllm_child import ask_vllm
    from dspark_cli.sources.vllm_install import find_vllm

    try:
        install = find_vllm()
    except NotFit:
        return None
    described, failure = {"platform": None, "model_runner": None}, None
    try:
        with waiting(f"starting vLLM {install.version} (its import takes 5 to 30 s)"):
            described = ask_vllm("describe", {}, install)
    except ToolError as error:
        failure = error.what
    return VllmFacts(install.distribution, install.version, install.verified, **described, failure=failure)
