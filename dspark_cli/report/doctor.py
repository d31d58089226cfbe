"""The environment and each command's readiness as two tables."""

from pydantic import ByteSize
from rich.table import Table
from rich.text import Text

from dspark_cli.facts.environment import Diagnosis, Environment, Readiness, VllmFacts
from dspark_cli.report.console import printable, result_console


def show_diagnosis(diagnosis: Diagnosis) -> None:
    console = result_console()
    console.print(_installed(diagnosis.environment))
    console.print()
    console.print(_commands(diagnosis.commands))


def _installed(here: Environment) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("Python", here.python)
    table.add_row("torch", here.torch or "not installed")
    table.add_row("Triton", here.triton or "not installed")
    table.add_row("vLLM", Text(printable(_vllm(here.vllm))))
    for gpu in here.gpus:
        memory = ByteSize(gpu.memory_bytes).human_readable() if gpu.memory_bytes else "memory unknown"
        capability = f"compute capability {gpu.compute_capability or 'unknown'}"
        described = f"{gpu.name}, {memory}, driver {gpu.driver or 'unknown'}, {capability}"
        table.add_row(f"GPU {gpu.index}", Text(printable(described)))
    if not here.gpus:
        table.add_row("GPU", "none that NVML sees and CUDA_VISIBLE_DEVICES leaves")
    return table


def _vllm(vllm: VllmFacts | None) -> str:
    if vllm is None:
        return "not installed"
    tried = "" if vllm.verified else ", a release this version was not tried with"
    runs = "does not start" if vllm.failure else f"platform {vllm.platform}, model runner {vllm.model_runner}"
    return f"{vllm.version} ({vllm.distribution}), {runs}{tried}"


def _commands(commands: list[Readiness]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for command in commands:
        state = Text("missing", "bold red") if command.missing else Text("ready", "bold green")
        table.add_row(command.command, state, Text(printable(command.missing or command.limits or "")))
    return table
