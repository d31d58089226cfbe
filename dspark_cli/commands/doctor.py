"""`dspark-tool doctor`: what is installed here, and what is missing for which command."""

import platform
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import ExitCode, NotFit, ToolError

if TYPE_CHECKING:
    from dspark_cli.facts.environment import Environment, VllmFacts


def doctor(json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Show what is installed and what is missing.

    Exit code 1 where a command cannot run.

    \b
    dspark-tool doctor
    """
    from dspark_cli.facts.environment import Diagnosis, readiness
    from dspark_cli.report.doctor import show_diagnosis
    from dspark_cli.report.json_document import print_json

    here = _examine()
    diagnosis = Diagnosis(here, readiness(here))
    if json:
        print_json("doctor", diagnosis)
    else:
        show_diagnosis(diagnosis)
    if any(command.missing for command in diagnosis.commands):
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
