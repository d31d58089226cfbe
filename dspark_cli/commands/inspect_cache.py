"""`dspark-tool inspect-cache`: the KV cache groups and capacity that a target and its drafter get."""

from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import BadInput

if TYPE_CHECKING:
    from dspark_cli.facts.cache_plan import CachePlan


def inspect_cache(
    model: Annotated[str, typer.Option(help="The target: a model folder or a hub name.")],
    draft: Annotated[str | None, typer.Option(help="The drafter. Without it: the target alone.")] = None,
    method: Annotated[str | None, typer.Option(help="dflash or dspark; as a rule the checkpoint says it.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Speculative tokens; as a rule the trained number.")] = None,
    kv_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for the KV cache a GPU, such as 1GiB or 40000000000.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="As vLLM's option.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="As vLLM's option.")] = None,
    vllm_args: Annotated[
        list[str] | None, typer.Argument(metavar="-- VLLM_ARGS", help="Any arguments of vllm serve, as they are.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show KV cache groups, page sizes and capacity.

    No weights are loaded and no GPU is needed: vLLM builds both models empty and plans as at start-up.

    \b
    dspark-tool inspect-cache --model ./target --draft ./drafter --kv-memory 40GiB
    dspark-tool inspect-cache --model ./target --kv-memory 40GiB -- --max-model-len 32768
    """
    from dspark_cli.report.cache import show_cache_plan
    from dspark_cli.report.console import show_note
    from dspark_cli.report.json_document import print_json
    from dspark_cli.serving.speculative import speculate, with_speculative_config
    from dspark_cli.sources.checkpoint import check_target

    check_target(model)
    engine_args = ["--model", model, *_own_options(kv_memory, max_model_len, block_size), *(vllm_args or [])]
    if draft is not None:
        speculation = speculate(draft, method, tokens)
        engine_args = with_speculative_config(engine_args, speculation)
        for doubt in speculation.doubts:
            show_note(doubt)
    elif method or tokens:
        raise BadInput("--method and --tokens are a drafter's, and there is no --draft", "give --draft DRAFTER")
    result = _plan(engine_args)
    if json:
        print_json("inspect-cache", result)
    else:
        show_cache_plan(result)


def _own_options(kv_memory: str | None, max_model_len: int | None, block_size: int | None) -> list[str]:
    given = {
        "--kv-cache-memory-bytes": None if kv_memory is None else parse_size(kv_memory),
        "--max-model-len": max_model_len,
        "--block-size": block_size,
    }
    return [word for option, value in given.items() if value is not None for word in (option, str(value))]


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


def _plan(engine_args: list[str]) -> "CachePlan":
    from dspark_cli.facts.cache_plan import CachePlan
    from dspark_cli.report.console import show_note, waiting
    from dspark_cli.sources.vllm_child import ask_vllm
    from dspark_cli.sources.vllm_install import find_vllm

    install = find_vllm()
    for doubt in install.doubts:
        show_note(doubt)
    with waiting(f"asking the planner of vLLM {install.version} (its import takes 5 to 30 s)"):
        return CachePlan.from_answer(ask_vllm("plan_cache", {"vllm_args": engine_args}, install))
