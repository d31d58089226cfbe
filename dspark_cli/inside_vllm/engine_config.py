"""Arguments of `vllm serve` as the engine configuration that the server would make of them."""

import dataclasses
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from vllm.config import VllmConfig, replace
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import make_arg_parser
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser

from dspark_cli.inside_vllm.answer import Refused
from dspark_cli.sources.vllm_log import readable

GPUS_ENOUGH_FOR_ANY_PLAN = 1024


def engine_config(vllm_args: Sequence[str], drafter: bool = True, exact_options: Sequence[str] = ()) -> VllmConfig:
    """The configuration, without the drafter that the arguments name where `drafter` is False.

    Raises:
        Refused: vLLM does not take the arguments, in its own words, or has none of `exact_options` by that name.
    """
    _inspect_models_in_this_process()
    _have_gpus_enough()
    parser = make_arg_parser(FlexibleArgumentParser())

    def refuse(message: str) -> None:
        raise Refused(f"vLLM does not take these arguments: {message}")

    parser.error = refuse
    for option in exact_options:
        if option not in parser._option_string_actions:
            refuse(f"{option} is no option of vllm serve")
    try:
        arguments = parser.parse_args(list(vllm_args))
        _name_the_model(arguments, parser)
        if not drafter:
            _forget_the_drafter(arguments)
        # The default number of batched tokens, and with it what a window retains, depends on who asks.
        return AsyncEngineArgs.from_cli_args(arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, FileNotFoundError, NotImplementedError, AssertionError) as error:
        reason = " ".join(readable(str(error))) or type(error).__name__
        raise Refused(f"vLLM refuses this configuration: {reason}") from None


def _name_the_model(arguments: Namespace, parser: FlexibleArgumentParser) -> None:
    """As `vllm serve` does it, where the model may stand without an option; vLLM's default is no answer."""
    if getattr(arguments, "model_tag", None):
        arguments.model = arguments.model_tag
    elif arguments.model == parser.get_default("model"):
        raise Refused("no model is named")


def _forget_the_drafter(arguments: Namespace) -> None:
    for name in vars(arguments):
        if name == "speculative_config" or name.startswith("spec_"):
            setattr(arguments, name, None)


def _inspect_models_in_this_process() -> None:
    """vLLM looks at a model class in a process of its own, which costs an import and would see another platform."""
    from vllm.model_executor.models import registry

    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda look: look()


def _have_gpus_enough() -> None:
    """A plan may be for more GPUs than this machine has."""
    from vllm.platforms import current_platform

    if current_platform.is_cuda_alike():
        type(current_platform).device_count = classmethod(lambda _: GPUS_ENOUGH_FOR_ANY_PLAN)


def drafter_engine_config(config: VllmConfig) -> VllmConfig:
    """What vLLM changes for the drafter: attention backend, causality, KV dtype, and its own parallel sizes."""
    from vllm.model_executor.models.qwen3_dflash import dflash_has_any_non_causal

    speculative = config.speculative_config
    drafter = speculative.draft_model_config
    attention = replace(
        config.attention_config,
        backend=speculative.attention_backend,
        use_non_causal=dflash_has_any_non_causal(drafter.hf_config),
    )
    kv_dtype = getattr(speculative, "kv_cache_dtype", None)
    cache = replace(config.cache_config, cache_dtype=kv_dtype) if kv_dtype else config.cache_config
    own = replace(config, attention_config=attention, cache_config=cache)
    own.parallel_config = dataclasses.replace(config.parallel_config, **_drafter_sizes(config))
    if speculative.method == "dspark":
        from vllm.model_executor.models.utils import get_draft_quant_config

        own.quant_config = get_draft_quant_config(config)
    return own


def drafter_context_parallel(config: VllmConfig) -> int:
    """Over how many ranks the drafter's KV is sharded: only MLA drafters take part in decode context parallelism."""
    drafter = config.speculative_config.draft_model_config
    return int(config.parallel_config.decode_context_parallel_size) if drafter.use_mla else 1


def _drafter_sizes(config: VllmConfig) -> dict[str, Any]:
    sizes = {
        "prefill_context_parallel_size": 1,
        "decode_context_parallel_size": drafter_context_parallel(config),
    }
    parallel = config.parallel_config
    return {name: size for name, size in sizes.items() if getattr(parallel, name, 1) != size}
