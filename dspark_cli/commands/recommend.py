"""`dspark-tool recommend`: the settings for a target and its drafter, with the reasons."""

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
from dspark_cli.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from dspark_cli.patches.found_vllm import FoundVllm
    from dspark_cli.recommending.recommendation import Recommendation


def recommend(
    model: Annotated[str, typer.Argument(help="The target: a model folder or a hub name.")],
    draft: Annotated[str, typer.Option(help="The drafter: a model folder or a hub name.")],
    method: Annotated[str | None, typer.Option(help="dflash or dspark; as a rule the checkpoint says it.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, max=4096, help="Your own number of speculative tokens.")] = None,
    concurrency: Concurrency = None,
    shared_prefix: SharedPrefix = None,
    latency: Latency = False,
    throughput: Throughput = False,
    max_model_len: Annotated[int | None, typer.Option(min=1, max=1 << 40, help="As vLLM's.")] = None,
    profile: Profile = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="A GPU that is not here: h200, b200, ...")] = None,
    vllm: Annotated[str | None, typer.Option(metavar="PATH", help="Another vLLM: a folder or a .whl file.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a file for vllm serve --config (.yaml).")
    ] = None,
    vllm_args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- VLLM_ARGS", help="Your own arguments of vllm serve; they win."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Recommend speculative settings for a target and its drafter, with the reason and the source of each.

    Nothing is started and no model is loaded: the two config.json, the GPU, the installed vLLM and its patches are
    looked at. Your own arguments win; known traps among them are named. Exit code 1 where they cannot work.

    \b
    dspark-tool recommend ./target --draft ./drafter
    dspark-tool recommend ./target --draft ./drafter --concurrency 32 --shared-prefix 2000
    dspark-tool recommend ./target --draft ./drafter --gpu b200 -- -tp 2 --max-model-len 32768
    dspark-tool recommend ./target --draft ./drafter --profile tune.jsonl --config serve.yaml
    """
    from dspark_cli.recommending.gather import Asked
    from dspark_cli.recommending.recommend import recommend_for, without_secrets_shown
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.recommendation import show_recommendation
    from dspark_cli.serving.patched_runtime import asked_policy
    from dspark_cli.serving.speculative import take_speculative_config

    rest, given = take_speculative_config(vllm_args or [])
    if max_model_len is not None:
        rest = ["--max-model-len", str(max_model_len), *rest]
    workload = workload_of(concurrency, shared_prefix, latency, throughput)
    tuned, counted = measured(profile)
    policy = asked_policy(None)
    asked = Asked(model, draft, method, tokens, tuple(rest), given, workload, policy, gpu, tuned, counted)
    found, distribution = _vllm(vllm)
    result = without_secrets_shown(recommend_for(asked, found, distribution))
    if config is not None:
        _write_config(config, result)
    if json:
        print_json("recommend", result)
    else:
        show_recommendation(result)
    if result.refused:
        raise typer.Exit(ExitCode.FINDINGS)


def _vllm(given: str | None) -> tuple["FoundVllm", str]:
    """The vLLM to recommend for, and its distribution."""
    from dspark_cli.patches.found_vllm import given_vllm, installed_vllm
    from dspark_cli.sources.vllm_install import find_vllm

    if given is not None:
        return given_vllm(given), "vllm"
    install = find_vllm()
    return installed_vllm(install), install.distribution


def _write_config(file: Path, recommendation: "Recommendation") -> None:
    from dspark_cli.recommending.config_file import config_file
    from dspark_cli.report.console import show_note
    from dspark_cli.report.result_file import write_file
    from dspark_cli.serving.shell_words import quoted

    if file.suffix not in (".yaml", ".yml"):
        raise BadInput(f"vLLM takes configuration files by the names .yaml and .yml, not {file.name}", "rename it")
    write_file(file, config_file(recommendation))
    show_note(f"the settings are in {file}: vllm serve --config {quoted(str(file))}")
