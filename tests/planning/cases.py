"""What is compared: a target, perhaps with a drafter, under some of the options that change what a layer caches."""

import json
from pathlib import Path
from typing import Any

from tests.planning.architectures import ARCHITECTURES, DRAFTERS, FULL, NOT_KNOWN, WINDOW

Case = dict[str, Any]

NOT_ON_CPU = {
    "deepseek-v32": "sparse attention needs a GPU",
    "glm-dsa": "sparse attention needs a GPU",
    "kimi-k3": "as Kimi Linear",
    "kimi-linear": "vLLM turns prefix caching off for MLA, and its hybrids need it",
    "olmo-hybrid": "its layer sets up Triton, which vLLM leaves out there",
    "dspark": "runner V2 only",
    "dflash-mixed": "runner V2 only",
    "deepseek-v3 + dflash": "the two share no block size since 0.33",
    "kv_cache_dtype": "depends on the CPU since 0.33",
}
"""Parts of the names of cases that vLLM itself refuses there, or on some machines."""

PAIRS = (
    ("qwen3", "dflash"),
    ("qwen3", "dflash-sliding"),
    ("qwen3", "dflash-mixed"),
    ("qwen3", "dflash-own-window"),
    ("qwen3", "dflash-other-geometry"),
    ("qwen3", "dspark"),
    ("qwen3", "dspark-sliding"),
    ("mistral-sliding", "dflash"),
    ("gpt-oss", "dflash-sliding"),
    ("gemma3", "dflash"),
    ("gemma4-vl", "dflash"),
    ("gemma4-vl", "gemma4-dspark"),
    ("deepseek-v3", "dflash"),
    ("deepseek-v32", "dflash"),
    ("qwen3-next", "dflash"),
    ("qwen3.5", "dspark"),
    ("qwen3.5-vl", "dflash"),
    ("nemotron-h", "dflash"),
    ("laguna", "laguna-dflash"),
    ("mimo-v2", "dflash-own-window"),
    ("kimi-k3", "kimi-k3-dspark"),
    ("kimi-k25", "kimi-k3-dspark"),
)

DIVIDED_ON_CPU = ("qwen3", "deepseek-v3", "qwen3-next", "nemotron-h", "jamba", "whisper")
TAKEN_IN_FP8 = (
    "llama",
    "gemma3",
    "llama4",
    "deepseek-v3",
    "deepseek-v32",
    "qwen3-next",
    "kimi-linear",
    "mimo-v2",
    "whisper",
)
FP8: Case = {"kv_cache_dtype": "fp8"}
EXEMPT: Case = {"kv_cache_dtype_skip_layers": ["sliding_window", "1"]}


def cases(folder: Path | None, gpu: bool) -> list[Case]:
    """Each has a name and the arguments of `compare_specs.compare`; configurations are written to `folder`, if any."""
    made = [_case(folder, target) for target in ARCHITECTURES]
    divided = ARCHITECTURES if gpu else DIVIDED_ON_CPU
    made += [_case(folder, target, tensor_parallel_size=2) for target in divided]
    made += [_case(folder, target, drafter) for target, drafter in PAIRS]
    made += [_case(folder, target, drafter, tensor_parallel_size=2) for target, drafter in PAIRS[:7]]
    made += [
        _case(folder, target, stage=stage, pipeline_parallel_size=2)
        for target in ("gemma3", "qwen3-next", "nemotron-h")
        for stage in (0, 1)
    ]
    made += [_case(folder, target, **FP8) for target in TAKEN_IN_FP8]
    made += [
        _case(folder, "gemma3", **FP8, **EXEMPT),
        _case(folder, "qwen3", "dflash", **FP8),
        _case(folder, "qwen3", "dflash", draft=FP8),
        _case(folder, "qwen3", block_size=64),
        _case(folder, "qwen3-next", block_size=64),
        _case(folder, "qwen3", dtype="float32"),
        _case(folder, "nemotron-h", mamba_ssm_cache_dtype="float32", enable_prefix_caching=False),
        _case(folder, "gemma3-vl", language_model_only=True),
    ]
    return [case for case in made if gpu or not any(part in case["name"] for part in NOT_ON_CPU)]


def not_derivable(folder: Path | None) -> dict[str, Case]:
    """What the error has to name -> a case that nobody here may derive."""
    llama, qwen = ARCHITECTURES["llama"], ARCHITECTURES["qwen3"]
    strange = {
        "Zamba2ForCausalLM": NOT_KNOWN["zamba2"],
        "'chunked_attention' (layer 1)": {**llama, "layer_types": [FULL, "chunked_attention", FULL, FULL]},
        "kv_compression_ratio = 4": {**llama, "kv_compression_ratio": 4},
        "is_causal = False": {**llama, "is_causal": False},
        "num_kv_shared_layers = 2": {**llama, "num_kv_shared_layers": 2},
        "kv_lora_rank = 512": {**qwen, "kv_lora_rank": 512},
        "index_block_topk = 16": {**ARCHITECTURES["deepseek-v3"], "index_block_topk": 16},
        "full_attention, sliding_attention": {**qwen, **WINDOW, "max_window_layers": 2},
        "(full_attention, sliding_attention) were never compared": {
            **ARCHITECTURES["cohere2"],
            "architectures": ["Cohere2MoeForCausalLM"],
        },
    }
    refused = {
        what: {"name": what, "stage": 0, "options": {"model": written(folder, f"strange-{number}", config)}}
        for number, (what, config) in enumerate(strange.items())
    }
    odd_drafter = {**DRAFTERS["dflash"], "layer_types": [FULL, "chunked_attention"]}
    pair = _case(folder, "qwen3", "dflash")
    pair["options"]["speculative_config"]["model"] = written(folder, "strange-dflash", odd_drafter)
    return refused | {"DFlashDraftModel cannot be derived: layer type 'chunked_attention' (layer 1)": pair}


def _case(
    folder: Path | None,
    target: str,
    drafter: str | None = None,
    stage: int = 0,
    draft: dict[str, Any] | None = None,
    **options: Any,
) -> Case:
    words = [target]
    words += [f"+ {drafter}"] if drafter else []
    words += [f"draft {key}={value}" for key, value in (draft or {}).items()]
    words += [f"{key}={value}" for key, value in options.items()]
    words += [f"stage {stage}"] if "pipeline_parallel_size" in options else []
    options |= {"model": written(folder, target, ARCHITECTURES[target])}
    options["max_model_len"] = 448 if target == "whisper" else 4096
    if drafter is not None:
        options["speculative_config"] = {
            "method": "dspark" if "dspark" in drafter else "dflash",
            "model": written(folder, drafter, DRAFTERS[drafter]),
            "num_speculative_tokens": 7,
            **(draft or {}),
        }
    return {"name": " ".join(words), "stage": stage, "options": options}


def written(folder: Path | None, name: str, config: dict[str, Any]) -> str:
    """The folder of a checkpoint that is a configuration alone; without a `folder` for it, where it would be."""
    if folder is None:
        return name
    model = folder / name
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(config))
    return str(model)
