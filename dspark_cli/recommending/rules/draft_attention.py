"""The attention backend of the drafter: one that can do its masks, its head size and its KV dtype on this GPU.

A drafter never inherits the target's `--attention-backend`; left out, vLLM picks one for it.
"""

from collections.abc import Iterator

from dspark_cli.facts.device import UNKNOWN_GPU
from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import speculative
from dspark_cli.recommending.situation import Situation

KEY = "attention_backend"
FA, FLASHINFER, TRITON = "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"
SELECTOR = "vLLM 0.33 platforms/cuda.py: _get_backend_priorities"
LARGEST_HEAD_OF_FA2 = 256
OLDEST_OF_FA, FP8_IN_TRITON = (8, 0), (8, 9)
NON_CAUSAL_LATENT_DCP = ("FLASHINFER_MLA", "TOKENSPEED_MLA")


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    yield _choice(situation)
    asked = situation.given.get(KEY)
    if isinstance(asked, str):
        yield from _traps(situation, asked.upper())


def _choice(situation: Situation) -> Choice:
    drafter, capability = situation.drafter, situation.device.compute_capability
    if capability is None:
        return _left(
            "a CPU has one backend, CPU_ATTN, and it can do non-causal drafts",
            "vLLM 0.32 on a CPU, run by this project",
        )
    if capability == UNKNOWN_GPU:
        return _left("the GPU is not known here: vLLM takes what it can do", SELECTOR)
    if drafter.in_target:
        return _left(
            "the drafter shares the target's cache layout and takes the target's backend",
            "vLLM 0.33 spec_decode/dspark/utils.py: _resolve_dspark_attention_backend",
        )
    if drafter.latent:
        return _left("latent attention has backends of its own, and vLLM orders them by GPU", SELECTOR)
    if not drafter.non_causal:
        return _left("all its layers are causal: every backend can do them, and vLLM takes the fastest", SELECTOR)
    if capability < OLDEST_OF_FA or situation.target.multimodal or (drafter.sinks and capability[0] not in (9, 10)):
        return _left(
            "this GPU, sinks or a multimodal target rule out FlashAttention in places: vLLM takes what it can do",
            "vLLM 0.33 flash_attn.py: supports_compute_capability, supports_combination",
        )
    if (drafter.head_dim or 0) > LARGEST_HEAD_OF_FA2:
        return _left(
            f"heads of {drafter.head_dim} need FlashAttention 4 or another backend: vLLM tests what is built",
            "vLLM 0.33 flash_attn.py: supports_head_size",
        )
    return _with_fp8_cache(capability) if _fp8(situation) else _flash_attention(capability)


def _with_fp8_cache(capability: tuple[int, int]) -> Choice:
    source = "vLLM 0.33 flash_attn.py: supports_combination; flashinfer.py: get_cudagraph_support"
    if capability[0] == 9:
        reason = "its layers are non-causal, and FlashAttention 3 reads an fp8 cache on this GPU"
        return speculative(KEY, FA, reason, source, Confidence.LIKELY)
    if capability[0] == 10:
        return _left("FlashAttention 4 reads an fp8 cache on this GPU where it is built: vLLM tests it first", source)
    if capability[0] == 12:
        reason = (
            "an fp8 cache rules out FlashAttention on this GPU, and FlashInfer's XQA kernels take non-causal drafts"
            " into full CUDA graphs"
        )
        return speculative(KEY, FLASHINFER, reason, source, Confidence.LIKELY)
    if capability < FP8_IN_TRITON:
        return _left("an fp8 cache leaves few backends on this GPU: vLLM takes what it can do", source)
    reason = "an fp8 cache rules out FlashAttention on this GPU, and FlashInfer drafts non-causally without CUDA graphs"
    return speculative(KEY, TRITON, reason, source, Confidence.POSSIBLE)


def _flash_attention(capability: tuple[int, int]) -> Choice:
    if capability[0] == 10:
        return speculative(
            KEY,
            FA,
            "its layers are non-causal: FlashInfer, first choice for targets on this GPU, does those on a path with"
            " known faults and without CUDA graphs",
            f"{SELECTOR}; flashinfer.py: get_cudagraph_support; vllm-project/vllm#48167",
            Confidence.LIKELY,
        )
    measured = capability[0] == 9
    return speculative(
        KEY,
        FA,
        "its layers are non-causal: FlashAttention does them in full CUDA graphs",
        "measured by this project: DFlash and DSpark on an H200 with vLLM 0.33" if measured else SELECTOR,
        Confidence.CERTAIN if measured else Confidence.LIKELY,
    )


def _left(reason: str, source: str) -> Choice:
    return speculative(KEY, None, reason, source, Confidence.LIKELY)


def _fp8(situation: Situation) -> bool:
    own, target = situation.given.get("kv_cache_dtype"), situation.options.text("--kv-cache-dtype")
    return str(own or target or "auto").startswith("fp8")


def _traps(situation: Situation, asked: str) -> Iterator[Finding]:
    drafter, capability = situation.drafter, situation.device.compute_capability
    if capability is None or not drafter.non_causal:
        return
    if asked == FLASHINFER and capability[0] in (8, 10) and not drafter.latent:
        yield Finding(
            "non-causal-flashinfer",
            Severity.WARNING,
            f"FlashInfer drafts this non-causal drafter without CUDA graphs on {situation.device.architecture}"
            + (", and on a path with known faults" if capability[0] == 10 else ""),
            {"attention_backend": asked, "device": situation.device.architecture},
            'leave attention_backend out, or give "FLASH_ATTN"',
            source="patch non_causal_on_sm100, eager_non_causal_flashinfer; vllm-project/vllm#48167",
            confidence=Confidence.LIKELY,
        )
    ranks = situation.options.number("--decode-context-parallel-size") or 1
    if drafter.latent and ranks > 1 and asked not in NON_CAUSAL_LATENT_DCP:
        yield Finding(
            "non-causal-latent-dcp",
            Severity.ERROR,
            f"{asked} cannot draft non-causally with latent attention under decode context parallelism",
            {"attention_backend": asked, "decode_context_parallel_size": ranks},
            f"give one of {', '.join(NON_CAUSAL_LATENT_DCP)}, or --decode-context-parallel-size 1",
            source="vLLM 0.33 v1/attention/backend.py: supports_non_causal_dcp",
            confidence=Confidence.CERTAIN,
        )
