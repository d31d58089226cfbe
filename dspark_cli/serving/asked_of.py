"""What a serve command asks of the server that it starts."""

from collections.abc import Sequence
from pathlib import Path

from dspark_cli.facts import start_verification as names
from dspark_cli.facts.asked import ENGINE_CORE, Asked, speculative_settings
from dspark_cli.facts.engine_configuration import Setting
from dspark_cli.patches.patch import Place
from dspark_cli.patches.registry import PATCHES
from dspark_cli.serving.command import ServeCommand
from dspark_cli.serving.patched_runtime import CONTEXT_OF, PatchedRuntime
from dspark_cli.serving.vllm_options import has_switch, option_values, whole_number, words_with_configuration

SIZES = {
    "--max-model-len": names.MODEL_LEN,
    "--block-size": names.BLOCK_TOKENS,
    "--max-num-batched-tokens": names.BATCHED_TOKENS,
    "--max-num-seqs": names.SEQUENCES,
}
EXECUTORS = ("--distributed-executor-backend", "--data-parallel-backend")
ELSEWHERE = (
    "--data-parallel-size-local",
    "--data-parallel-rank",
    "--data-parallel-start-rank",
    "--data-parallel-address",
)
"""Options with which some of the engines are another server's."""
RUNNERS = {Place.RUNNER_V1: "V1", Place.RUNNER_V2: "V2"}


def asked_of(command: ServeCommand) -> Asked:
    words = words_with_configuration(command.argv)
    settings = speculative_settings(command.speculative_config)
    if settings:
        settings[names.DRAFT_LAYERS] = command.draft_layers or names.THERE
        if "max_model_len" not in settings:
            settings[names.DRAFTER_LEN] = names.COVERED
    return Asked(
        settings={**settings, **_of_engine(words)},
        draft_context=str(command.runtime.draft_context),
        patches=_patches(command.runtime),
        all_on_this_host=not _is_spread(words),
    )


def _is_spread(words: Sequence[str]) -> bool:
    """Whether workers may be on other hosts, or their output elsewhere than in this server's log."""
    under_ray = any(option_values(words, option) == ["ray"] for option in EXECUTORS)
    return under_ray or _node_count(words) > 1 or any(option_values(words, option) for option in ELSEWHERE)


def _node_count(words: Sequence[str]) -> int:
    given = [whole_number(value) for value in (option_values(words, "--nnodes") or option_values(words, "-n"))[:1]]
    return next((count for count in given if count), 1)


def why_no_api(argv: Sequence[str]) -> str | None:
    """Why a server with these arguments answers no HTTP of its own, or None where it does."""
    words = words_with_configuration(argv)
    if has_switch(words, "--headless"):
        return "this node has no API (--headless)"
    rank = option_values(words, "--node-rank") or option_values(words, "-r")
    if rank and rank[0] not in ("0", ""):
        return f"this node has no API (--node-rank {rank[0]})"
    return None


def certificate_of(argv: Sequence[str]) -> Path | None:
    """The file that the server serves HTTPS with."""
    given = option_values(words_with_configuration(argv), "--ssl-certfile")
    return Path(given[0]) if given else None


def _of_engine(words: Sequence[str]) -> dict[str, Setting]:
    """The sizes that were given, and prefix caching, which vLLM has on where nobody says otherwise."""
    given = {setting: option_values(words, option)[:1] for option, setting in SIZES.items()}
    sizes = {setting: whole_number(value) for setting, values in given.items() for value in values}
    prefix_caching = has_switch(words, "--enable-prefix-caching")
    known: dict[str, Setting] = {setting: size for setting, size in sizes.items() if size is not None}
    return {names.PREFIX_CACHING: prefix_caching is not False, **known}


def _patches(runtime: PatchedRuntime) -> dict[str, tuple[str, ...]]:
    """By place, of those that may be in use: with two possible model runners one of them only is."""
    on = [patch for patch in PATCHES if patch.name in runtime.patches]
    of_place = {
        name: tuple(patch.name for patch in on if patch.place is place)
        for place, name in {**RUNNERS, Place.ENGINE_CORE: ENGINE_CORE}.items()
    }
    for place, name in RUNNERS.items():
        if CONTEXT_OF[place] in runtime.context_patches:
            of_place[name] = (CONTEXT_OF[place], *of_place[name])
    return {name: patches for name, patches in of_place.items() if patches}
