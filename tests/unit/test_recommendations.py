"""What is recommended for which target, drafter, GPU, release and workload, and why; near misses included."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dspark_cli.draft_context.policy import Policy
from dspark_cli.facts.device import Device
from dspark_cli.facts.drafter import Drafter, drafter_facts
from dspark_cli.facts.gpu_kind import gpu_kind
from dspark_cli.facts.measured_profile import BestCount, MeasuredProfile
from dspark_cli.facts.target import target_facts
from dspark_cli.patches.patch import Place as Runner
from dspark_cli.recommending.counted import CountedAcceptance
from dspark_cli.recommending.gather import OPTIONAL_FIELDS
from dspark_cli.recommending.given_options import GivenOptions
from dspark_cli.recommending.recommend import recommend
from dspark_cli.recommending.recommendation import Recommendation
from dspark_cli.recommending.situation import Goal, InstalledVllm, Situation, Workload
from dspark_cli.sources.checkpoint import Checkpoint, Method, drafter_method, read_checkpoint, trained_draft_tokens
from tests.paths import DFLASH, DSPARK, TARGET, TESTS

PUBLIC = TESTS.parent / "benchmarks" / "public_models"
BACKEND, TOKENS = "attention_backend", "num_speculative_tokens"
LATENCY, THROUGHPUT = Workload(goal=Goal.LATENCY), Workload(goal=Goal.THROUGHPUT)
EVERYTHING_FITS = frozenset({"draft_context_v1", "draft_context_v2", "explicit_depth_zero", "zero_width_graphs"})


@dataclass(frozen=True)
class Case:
    """`config` and `flags` are what the command line must say beyond the model, `refused` and `traps` the findings."""

    name: str
    pair: tuple[Path, Path]
    """Target and drafter."""
    gpu: str | None
    workload: Workload = field(default_factory=Workload)
    release: tuple[int, int] = (0, 33)
    given: dict[str, Any] = field(default_factory=dict)
    vllm_args: tuple[str, ...] = ()
    v1: bool = False
    policy: Policy = Policy.VALIDITY
    connector_without_hybrid: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()


def public(name: str) -> Path:
    return PUBLIC / name


QWEN = public("qwen3-8b"), public("qwen3-8b-dflash-b16")
QWEN_DSPARK = public("qwen3-8b"), public("qwen3-8b-dspark-block7")
HYBRID = public("qwen3.6-27b"), public("qwen3.6-27b-dflash")
TINY = TARGET, DFLASH
FA = {BACKEND: "FLASH_ATTN"}
LATENT = public("kimi-k2.5"), public("kimi-k2.5-dflash")
LATENT_BOTH = public("kimi-k3"), public("kimi-k3-dspark")
LMCACHE = ("--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}')

CASES = (
    Case("a dense pair alone on Hopper", QWEN, gpu="h200", workload=LATENCY, config={TOKENS: 15, **FA}),
    Case("on Blackwell non-causal drafts keep off FlashInfer", QWEN, gpu="b200", config={TOKENS: 15, **FA}),
    Case("on a workstation Blackwell too", QWEN, gpu="rtx-pro-6000", config={TOKENS: 15, **FA}),
    Case(
        "an fp8 cache there needs XQA",
        QWEN,
        gpu="rtx-pro-6000",
        vllm_args=("--kv-cache-dtype", "fp8"),
        config={TOKENS: 15, BACKEND: "FLASHINFER"},
    ),
    Case(
        "an fp8 cache on Hopper stays with FlashAttention",
        QWEN,
        gpu="h100",
        vllm_args=("--kv-cache-dtype", "fp8"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "an fp8 cache on Ampere or Ada leaves Triton",
        QWEN,
        gpu="l40s",
        vllm_args=("--kv-cache-dtype", "fp8"),
        config={TOKENS: 15, BACKEND: "TRITON_ATTN"},
    ),
    Case("DSpark drafts its whole block", QWEN_DSPARK, gpu="h200", config={TOKENS: 7, **FA}),
    Case(
        "a trained confidence head under load verifies adaptively",
        QWEN_DSPARK,
        gpu="h200",
        workload=THROUGHPUT,
        config={TOKENS: 7, **FA, "enable_adaptive_verification": True},
    ),
    Case(
        "but not with LoRA",
        QWEN_DSPARK,
        gpu="h200",
        workload=THROUGHPUT,
        vllm_args=("--enable-lora",),
        config={TOKENS: 7, **FA},
    ),
    Case(
        "and whoever asks for both is refused",
        QWEN_DSPARK,
        gpu="h200",
        vllm_args=("--enable-lora",),
        given={"enable_adaptive_verification": True},
        config={TOKENS: 7, **FA, "enable_adaptive_verification": True},
        refused=("adaptive-verification-refused",),
    ),
    Case(
        "a confidence head in a release without adaptive verification",
        QWEN_DSPARK,
        gpu="h200",
        workload=THROUGHPUT,
        release=(0, 26),
        config={TOKENS: 7, **FA},
        flags=("--max-num-batched-tokens", str(8192 + 1024 * 6)),
    ),
    Case(
        "a hybrid target alone takes the trained number",
        HYBRID,
        gpu="h200",
        config={TOKENS: 15, **FA},
        traps=("draft-layer-alone",),
    ),
    Case(
        "under load it takes fewer, for each costs a state",
        HYBRID,
        gpu="h200",
        workload=Workload(concurrency=64),
        config={TOKENS: 7, **FA},
        traps=("draft-layer-alone",),
    ),
    Case(
        "a dense target under the same load does not",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=64),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "a shared prefix keeps its last block where the release would drop it",
        QWEN,
        gpu="h200",
        workload=Workload(shared_prefix=4000),
        release=(0, 32),
        config={TOKENS: 15, **FA, "disable_eagle_block_drop": True},
    ),
    Case(
        "0.33 drops nothing, so nothing is asked for",
        QWEN,
        gpu="h200",
        workload=Workload(shared_prefix=4000),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "0.29 has no such setting",
        QWEN,
        gpu="h200",
        workload=Workload(shared_prefix=4000),
        release=(0, 29),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "many requests need room for their draft queries",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=600),
        config={TOKENS: 15, **FA},
        flags=("--max-num-batched-tokens", "9600"),
    ),
    Case(
        "512 just fit into vLLM's own number",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=512),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "until 0.32 drafts take tokens of every step",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=8),
        release=(0, 32),
        config={TOKENS: 15, **FA},
        flags=("--max-num-batched-tokens", str(8192 + 8 * 15)),
    ),
    Case(
        "the user's own number wins, with the number that keeps it true",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=64),
        release=(0, 32),
        vllm_args=("--max-num-batched-tokens", "4096"),
        config={TOKENS: 15, **FA},
        traps=("drafts-take-batched-tokens",),
    ),
    Case(
        "latent attention has backends of its own",
        LATENT_BOTH,
        gpu="b200",
        config={TOKENS: 7},
    ),
    Case(
        "heads of 512 are left to what is built",
        (public("gemma-4-12b"), public("gemma-4-12b-dspark-block7")),
        gpu="h200",
        config={TOKENS: 7},
    ),
    Case(
        "a drafter in the target's checkpoint takes the target's backend",
        (public("deepseek-v4-flash-dspark"), public("deepseek-v4-flash-dspark")),
        gpu="b200",
        config={TOKENS: 5},
    ),
    Case(
        "DFlash2 drafts one less than its block",
        (public("qwen3.8-27b"), public("qwen3.8-27b-dflash2")),
        gpu="h100",
        config={TOKENS: 7, **FA},
    ),
    Case(
        "sliding and full draft layers without the hybrid manager run with each other's mask",
        HYBRID,
        gpu="h200",
        vllm_args=("--disable-hybrid-kv-cache-manager",),
        config={TOKENS: 15, **FA},
        refused=("mixed-masks-in-one-group",),
        traps=("draft-layer-alone",),
    ),
    Case(
        "layers of one kind may go without it",
        QWEN,
        gpu="h200",
        vllm_args=("--disable-hybrid-kv-cache-manager",),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "context parallelism before drafts were replicated",
        QWEN,
        gpu="h200",
        release=(0, 28),
        vllm_args=("-tp", "2", "-dcp", "2"),
        config={TOKENS: 15, **FA},
        refused=("dcp-before-replication",),
    ),
    Case(
        "context parallelism in the releases that were right for equal heads",
        QWEN,
        gpu="h200",
        release=(0, 30),
        vllm_args=("-tp", "2", "-dcp", "2"),
        config={TOKENS: 15, **FA},
        traps=("dcp-before-replication",),
    ),
    Case(
        "pipeline stages, which only some targets can",
        QWEN,
        gpu="h200",
        vllm_args=("-pp", "2"),
        config={TOKENS: 15, **FA},
        traps=("stages-before-drafter",),
    ),
    Case(
        "pipeline stages in a release that refuses them",
        QWEN,
        gpu="h200",
        release=(0, 29),
        vllm_args=("-pp", "2"),
        config={TOKENS: 15, **FA},
        refused=("stages-before-drafter",),
    ),
    Case(
        "a confidence head on a GPU whose attention replays one length",
        QWEN_DSPARK,
        gpu="l40s",
        workload=THROUGHPUT,
        config={TOKENS: 7, **FA},
    ),
    Case(
        "adaptive verification with pipeline stages",
        QWEN_DSPARK,
        gpu="h200",
        given={"enable_adaptive_verification": True},
        vllm_args=("-pp", "2"),
        config={TOKENS: 7, **FA, "enable_adaptive_verification": True},
        refused=("adaptive-verification-refused",),
        traps=("stages-before-drafter",),
    ),
    Case(
        "an fp8 cache on Ampere leaves the choice to vLLM",
        QWEN,
        gpu="a100",
        vllm_args=("--kv-cache-dtype", "fp8"),
        config={TOKENS: 15},
    ),
    Case(
        "a step that drafts fill wholly",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=64),
        release=(0, 32),
        vllm_args=("--max-num-batched-tokens", "900"),
        config={TOKENS: 15, **FA},
        refused=("drafts-take-batched-tokens",),
    ),
    Case(
        "the number that this tool recommends is no trap",
        QWEN,
        gpu="h200",
        workload=Workload(concurrency=64),
        release=(0, 32),
        vllm_args=("--max-num-batched-tokens", str(8192 + 64 * 15)),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "context parallelism of 1 is none",
        QWEN,
        gpu="h200",
        release=(0, 30),
        vllm_args=("-tp", "2", "-dcp", "1"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "context parallelism with target attention that knows nothing of it",
        QWEN,
        gpu="h200",
        vllm_args=("-tp", "2", "-dcp", "2", "--attention-backend", "triton_attn"),
        config={TOKENS: 15, **FA},
        refused=("dcp-target-backend",),
    ),
    Case(
        "the same target attention without context parallelism",
        QWEN,
        gpu="h200",
        vllm_args=("-tp", "2", "--attention-backend", "TRITON_ATTN"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "context parallelism that deals out more tokens than one at a time",
        QWEN,
        gpu="h200",
        vllm_args=("-tp", "2", "-dcp", "2", "--cp-kv-cache-interleave-size", "16"),
        config={TOKENS: 15, **FA},
        refused=("dcp-interleave",),
    ),
    Case(
        "tokens dealt out one by one",
        QWEN,
        gpu="h200",
        vllm_args=("-tp", "2", "-dcp", "2", "--cp-kv-cache-interleave-size", "1"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "an interleave without context parallelism",
        QWEN,
        gpu="h200",
        vllm_args=("-tp", "2", "--cp-kv-cache-interleave-size", "16"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "prefill context parallelism deals out tokens too",
        QWEN,
        gpu="h200",
        vllm_args=("-pcp", "2", "--cp-kv-cache-interleave-size", "16"),
        config={TOKENS: 15, **FA},
        refused=("dcp-interleave",),
    ),
    Case(
        "the older option of the interleave, which counts beside a connector",
        QWEN,
        gpu="h200",
        vllm_args=("-dcp", "2", "--dcp-kv-cache-interleave-size", "16", "--kv-transfer-config", "{}"),
        config={TOKENS: 15, **FA},
        refused=("dcp-interleave",),
    ),
    Case(
        "the older option without a connector, which vLLM passes over",
        QWEN,
        gpu="h200",
        vllm_args=("-dcp", "2", "--dcp-kv-cache-interleave-size", "16"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "latent attention whose backend takes more tokens than one at a time",
        LATENT,
        gpu="b200",
        vllm_args=("-dcp", "2", "--cp-kv-cache-interleave-size", "64", "--attention-backend", "tokenspeed_mla"),
        config={TOKENS: 7, **FA},
    ),
    Case(
        "latent attention before its backend took more tokens than one at a time",
        LATENT,
        gpu="b200",
        release=(0, 31),
        vllm_args=("-dcp", "2", "--cp-kv-cache-interleave-size", "64", "--attention-backend", "TOKENSPEED_MLA"),
        config={TOKENS: 7, **FA},
        traps=("dcp-interleave",),
    ),
    Case(
        "latent attention whose backend is for vLLM to choose",
        LATENT,
        gpu="b200",
        vllm_args=("-dcp", "2", "--cp-kv-cache-interleave-size", "64", "--attention-backend", "auto"),
        config={TOKENS: 7, **FA},
        traps=("dcp-interleave",),
    ),
    Case(
        "a latent drafter, which is sharded as its target is, with attention of its own",
        LATENT_BOTH,
        gpu="b200",
        vllm_args=("-dcp", "2", "--cp-kv-cache-interleave-size", "64", "--attention-backend", "TOKENSPEED_MLA"),
        config={TOKENS: 7},
        traps=("dcp-interleave",),
    ),
    Case(
        "context parallelism without the hybrid manager, which keeps both groups",
        QWEN,
        gpu="h200",
        vllm_args=("-tp", "2", "-dcp", "2", "--disable-hybrid-kv-cache-manager", "--attention-backend", "FLASH_ATTN"),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "context parallelism with a connector and without the hybrid manager",
        QWEN,
        gpu="h200",
        vllm_args=("-dcp", "2", "--disable-hybrid-kv-cache-manager", "--kv-transfer-config", "{}"),
        config={TOKENS: 15, **FA},
        refused=("dcp-hybrid-manager-off",),
    ),
    Case(
        "context parallelism with a connector that switches the hybrid manager off by itself",
        QWEN,
        gpu="h200",
        vllm_args=("-dcp", "2", *LMCACHE),
        connector_without_hybrid="LMCacheConnectorV1",
        config={TOKENS: 15, **FA},
        refused=("dcp-hybrid-manager-off",),
    ),
    Case(
        "such a connector for layers of one kind",
        QWEN,
        gpu="h200",
        vllm_args=LMCACHE,
        connector_without_hybrid="LMCacheConnectorV1",
        config={TOKENS: 15, **FA},
    ),
    Case(
        "such a connector for a target with recurrent layers and a drafter of two kinds",
        HYBRID,
        gpu="h200",
        vllm_args=LMCACHE,
        connector_without_hybrid="LMCacheConnectorV1",
        config={TOKENS: 15, **FA},
        refused=("connector-turns-hybrid-manager-off", "mixed-masks-in-one-group"),
        traps=("draft-layer-alone",),
    ),
    Case(
        "a drafter of another target",
        (public("llama-3.1-8b"), public("qwen3-8b-dflash-b16")),
        gpu="h200",
        config={TOKENS: 15, **FA},
        refused=("drafter-of-another-target",),
        traps=("drafter-made-for-shorter",),
    ),
    Case("the tiny pair on a CPU", TINY, gpu=None, v1=True, release=(0, 32), config={TOKENS: 7}),
    Case(
        "DSpark on a CPU",
        (TARGET, DSPARK),
        gpu=None,
        v1=True,
        release=(0, 32),
        config={TOKENS: 7},
        refused=("needs-runner-v2",),
    ),
    Case(
        "sliding and full draft layers on runner V1",
        HYBRID,
        gpu="h200",
        v1=True,
        config={TOKENS: 15, **FA},
        refused=("needs-runner-v2",),
        traps=("draft-layer-alone",),
    ),
    Case(
        "more tokens than trained",
        QWEN,
        gpu="h200",
        given={TOKENS: 20},
        config={TOKENS: 20, **FA},
        traps=("more-tokens-than-trained",),
    ),
    Case("as many as trained", QWEN, gpu="h200", given={TOKENS: 15}, config={TOKENS: 15, **FA}),
    Case(
        "FlashInfer asked for on Blackwell",
        QWEN,
        gpu="b200",
        given={BACKEND: "FLASHINFER"},
        config={TOKENS: 15, BACKEND: "FLASHINFER"},
        traps=("non-causal-flashinfer",),
    ),
    Case(
        "FlashInfer asked for where XQA kernels draft",
        QWEN,
        gpu="rtx-pro-6000",
        given={BACKEND: "FLASHINFER"},
        config={TOKENS: 15, BACKEND: "FLASHINFER"},
    ),
    Case(
        "prefix caching switched off for nothing",
        QWEN,
        gpu="h200",
        vllm_args=("--no-enable-prefix-caching",),
        config={TOKENS: 15, **FA},
        traps=("prefix-caching-off",),
    ),
    Case(
        "a connector that nothing checks",
        QWEN,
        gpu="h200",
        policy=Policy.OFF,
        vllm_args=("--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}'),
        config={TOKENS: 15, **FA},
        traps=("connector-without-check",),
    ),
    Case(
        "a connector that checks by itself",
        QWEN,
        gpu="h200",
        policy=Policy.OFF,
        vllm_args=("--kv-transfer-config", '{"kv_connector": "NixlConnector"}'),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "a connector under validity",
        QWEN,
        gpu="h200",
        vllm_args=("--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}'),
        config={TOKENS: 15, **FA},
    ),
    Case(
        "longer sequences than the drafter was made for",
        QWEN,
        gpu="h200",
        vllm_args=("--max-model-len", "100k"),
        config={TOKENS: 15, **FA},
        traps=("drafter-made-for-shorter",),
    ),
    Case(
        "a draft cache of its own dtype",
        QWEN,
        gpu="h200",
        given={"kv_cache_dtype": "fp8"},
        config={TOKENS: 15, **FA, "kv_cache_dtype": "fp8"},
        traps=("draft-kv-dtype-differs",),
    ),
    Case(
        "the same dtype said twice",
        QWEN,
        gpu="h200",
        given={"kv_cache_dtype": "fp8"},
        vllm_args=("--kv-cache-dtype=fp8",),
        config={TOKENS: 15, **FA, "kv_cache_dtype": "fp8"},
    ),
    Case(
        "blocks that no shared prefix fills",
        QWEN,
        gpu="h200",
        workload=Workload(shared_prefix=100),
        vllm_args=("--block-size", "256"),
        config={TOKENS: 15, **FA},
        traps=("block-longer-than-prefix",),
    ),
)


def situation(case: Case, profile: MeasuredProfile | None = None) -> Situation:
    checkpoint = read_checkpoint(str(case.pair[1]))
    method = drafter_method(checkpoint)
    kind = gpu_kind(case.gpu) if case.gpu else None
    fields = set(OPTIONAL_FIELDS)
    fields -= {"disable_eagle_block_drop"} if case.release < (0, 30) else set()
    fields -= {"enable_adaptive_verification"} if case.release < (0, 28) else set()
    return Situation(
        target=target_facts(read_checkpoint(str(case.pair[0]))),
        drafter=drafter_facts(checkpoint, method, trained_draft_tokens(checkpoint, method)),
        method_evidence="its architecture",
        method_of_checkpoint=method,
        device=Device(kind.device_name, 1, kind.compute_capability, kind.memory_bytes) if kind else Device("CPU", 1),
        vllm=InstalledVllm("vllm", f"0.{case.release[1]}.0", case.release, frozenset(fields), case.release < (0, 33)),
        runner=Runner.RUNNER_V1 if case.v1 else Runner.RUNNER_V2,
        workload=case.workload,
        policy=str(case.policy),
        given=case.given,
        options=GivenOptions(case.vllm_args),
        mended=EVERYTHING_FITS,
        profile=profile,
        connector_without_hybrid=case.connector_without_hybrid,
    )


def recommended(case: Case, profile: MeasuredProfile | None = None) -> Recommendation:
    return recommend(situation(case, profile), case.vllm_args)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_recommendation(case: Case) -> None:
    result = recommended(case)

    asked = {key: value for key, value in result.speculative_config.items() if key not in ("method", "model")}
    assert asked == case.config
    assert result.vllm_args == (*case.vllm_args, *case.flags)
    assert tuple(finding.id for finding in result.refused) == case.refused
    assert tuple(finding.id for finding in result.traps) == case.traps


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_choice_says_why_from_where_and_how_sure(case: Case) -> None:
    for choice in recommended(case).choices:
        assert choice.reason
        assert choice.source
        assert choice.confidence


def test_the_users_value_wins_and_the_reason_keeps_what_was_recommended() -> None:
    case = next(case for case in CASES if case.name == "FlashInfer asked for on Blackwell")

    backend = next(choice for choice in recommended(case).choices if choice.setting == BACKEND)

    assert (backend.value, backend.by_user) == ("FLASHINFER", True)
    assert "recommended is FLASH_ATTN" in backend.reason


def profile_of(*best: tuple[int, int], schedule: tuple[tuple[int, int, int], ...] | None = None) -> MeasuredProfile:
    return MeasuredProfile(
        target=str(public("qwen3-8b")),
        drafter=str(public("qwen3-8b-dflash-b16")),
        vllm="vllm 0.33.0",
        device="NVIDIA H200",
        measured_on="2026-11-30",
        best=tuple(BestCount(at, tokens, 900.0, 600.0, True) for at, tokens in best),
        schedule=schedule,
    )


DENSE = CASES[0]


@pytest.mark.parametrize(
    ("concurrency", "tokens"), [(None, 7), (1, 7), (5, 4), (8, 4), (100, 2)], ids=lambda value: str(value)
)
def test_a_measured_number_beats_the_trained_one(concurrency: int | None, tokens: int) -> None:
    case = Case("", QWEN, gpu="h200", workload=Workload(concurrency))

    result = recommended(case, profile_of((32, 2), (8, 4), (1, 7)))

    assert result.speculative_config[TOKENS] == tokens
    assert result.traps == ()


def test_a_measured_schedule_is_given_with_its_deepest_number() -> None:
    schedule = ((1, 4, 7), (5, 16, 4), (17, 1024, 0))

    result = recommended(DENSE, profile_of((1, 7), (8, 4), (32, 0), schedule=schedule))

    assert result.speculative_config[TOKENS] == 7
    assert result.speculative_config["num_speculative_tokens_per_batch_size"] == [list(entry) for entry in schedule]
    assert result.traps == ()


def test_a_schedules_deepest_number_is_told_with_the_load_that_it_is_best_at() -> None:
    """Alone no speculation is best, and the schedule begins with it."""
    result = recommended(DENSE, profile_of((1, 0), (8, 4), schedule=((1, 2, 0), (3, 1024, 4))))

    choice = next(choice for choice in result.choices if choice.setting == TOKENS)
    assert choice.value == 4
    assert "at 8 at once 4 tokens gave 900 tokens/s, +50% against no speculation" in choice.reason


def test_a_profile_within_a_latency_bound_says_so_and_one_that_never_met_it_gives_no_number() -> None:
    met = recommended(DENSE, replace(profile_of((1, 4)), tpot_ms=20.0))
    never = recommended(DENSE, replace(profile_of(), tpot_ms=20.0))

    choice = next(choice for choice in met.choices if choice.setting == TOKENS)
    assert "tokens/s of requests with TPOT at most 20 ms, +50%" in choice.reason
    assert [trap.id for trap in never.traps] == ["bound-never-met"]
    assert never.speculative_config[TOKENS] == recommended(DENSE).speculative_config[TOKENS]


def test_a_schedule_of_one_depth_is_a_number() -> None:
    result = recommended(DENSE, profile_of((1, 7), (8, 7), schedule=((1, 1024, 7),)))

    assert "num_speculative_tokens_per_batch_size" not in result.speculative_config


def test_a_profile_that_speculation_never_wins_says_so() -> None:
    result = recommended(DENSE, profile_of((1, 0)))

    assert [trap.id for trap in result.traps] == ["speculation-does-not-pay"]


def test_a_profile_that_could_not_tell_does_not_say_that_speculation_loses() -> None:
    unsure = profile_of((1, 0))
    unsure = replace(unsure, best=tuple(replace(best, certain=False) for best in unsure.best))

    sure, result = recommended(DENSE, profile_of((1, 0))), recommended(DENSE, unsure)

    assert "that beats no speculation" in sure.traps[0].what
    assert "that surely beats no speculation" in result.traps[0].what


def test_where_latency_counts_one_request_at_once_is_meant() -> None:
    profile = profile_of((1, 9), (64, 2))

    alone = recommended(replace(DENSE, workload=LATENCY), profile)
    busy = recommended(replace(DENSE, workload=Workload(64, goal=Goal.LATENCY)), profile)

    assert (alone.speculative_config[TOKENS], busy.speculative_config[TOKENS]) == (9, 2)


def test_a_profile_of_another_pair_is_told() -> None:
    other = Case("", HYBRID, gpu="h200")

    result = recommended(other, profile_of((1, 7)))

    assert [trap.id for trap in result.traps] == ["profile-of-another-setting", "draft-layer-alone"]


def test_a_schedule_under_data_parallel_is_dropped_by_vllm() -> None:
    case = Case("", QWEN, gpu="h200", vllm_args=("-dp", "2"))
    schedule = ((1, 4, 7), (5, 1024, 2))

    result = recommended(case, profile_of((1, 7), schedule=schedule))

    assert [trap.id for trap in result.traps] == ["schedule-under-data-parallel"]


def counted(keep: int, drafted: int = 15, broken: bool = False) -> CountedAcceptance:
    return CountedAcceptance("before.json", 4_000, drafted, keep, 1.01 if broken else 3.2, broken)


@pytest.mark.parametrize(("keep", "tokens"), [(6, 6), (15, 15), (0, 15)])
def test_positions_that_were_counted_never_to_pay_are_not_drafted(keep: int, tokens: int) -> None:
    result = recommend(replace(situation(DENSE), counted=counted(keep)), ())

    assert result.speculative_config[TOKENS] == tokens
    assert result.traps == ()


def test_nothing_follows_from_broken_acceptance() -> None:
    result = recommend(
        replace(situation(DENSE), counted=counted(2, broken=True)),
        (),
    )

    assert result.speculative_config[TOKENS] == 15
    assert [trap.id for trap in result.traps] == ["counted-acceptance-is-broken"]


def drafter(**config: object) -> Drafter:
    whole = {"architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "block_size": 8, **config}
    checkpoint = Checkpoint("drafter", whole)
    method = drafter_method(checkpoint)
    return drafter_facts(checkpoint, method, trained_draft_tokens(checkpoint, method))


MIXED = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("config", "causal", "non_causal"),
    [
        ({}, False, True),
        ({"layer_types": ["full_attention"] * 2}, False, True),
        ({"layer_types": MIXED}, True, True),
        ({"layer_types": ["sliding_attention"] * 2}, True, False),
        ({"layer_types": MIXED, "is_causal": False}, False, True),
        ({"layer_types": MIXED, "dflash_config": {"causal": True}}, True, False),
        ({"layer_types": MIXED, "is_causal": True, "dflash_config": {"causal": False}}, True, False),
        ({"dflash_config": {"use_swa": True}}, False, True),
        ({"speculators_model_type": "dflash", "transformer_layer_config": {"layer_types": MIXED}}, False, True),
        ({"speculators_model_type": "dflash", "sliding_window_non_causal": False}, True, False),
    ],
)
def test_causality_is_vllms(config: dict[str, object], causal: bool, non_causal: bool) -> None:
    facts = drafter(**config)

    assert (facts.causal, facts.non_causal) == (causal, non_causal)


def test_layers_of_one_mask_may_share_a_group() -> None:
    one_mask = replace(situation(DENSE).drafter, full_layers=1, sliding_layers=4, causal=False)
    case = Case("", QWEN, gpu="h200", vllm_args=("--disable-hybrid-kv-cache-manager",))

    result = recommend(replace(situation(case), drafter=one_mask), case.vllm_args)

    assert result.refused == ()


@pytest.mark.parametrize(
    ("config", "tokens", "extra"),
    [
        ({}, 7, 1),
        ({"architectures": ["Qwen3DSparkModel"]}, 8, 0),
        ({"architectures": ["Qwen3DSparkModel"], "sample_from_anchor": False}, 7, 1),
        ({"architectures": ["Qwen3DSparkModel"], "speculators_model_type": "dspark"}, 7, 1),
    ],
)
def test_a_blocks_first_place_drafts_or_is_known(config: dict[str, object], tokens: int, extra: int) -> None:
    facts = drafter(**config)

    assert (facts.trained_tokens, facts.query_tokens_extra) == (tokens, extra)


def test_a_layout_that_vllm_refuses_is_refused() -> None:
    facts = drafter(dflash_config={"sample_from_anchor": True})

    result = recommend(replace(situation(DENSE), drafter=replace(facts, target_layers=36, target_hidden_size=4096)), ())

    assert "anchor-layout-not-served" in [finding.id for finding in result.refused]


@pytest.mark.parametrize(("release", "readable"), [((0, 33), False), ((0, 34), True)])
def test_an_interleave_is_not_refused_for_a_target_or_a_release_that_nobody_read(
    release: tuple[int, int], readable: bool
) -> None:
    case = Case(
        "an interleave",
        QWEN,
        gpu="h200",
        release=release,
        vllm_args=("-dcp", "2", "--cp-kv-cache-interleave-size", "4"),
    )
    asked = situation(case)
    if not readable:
        asked = replace(asked, target=target_facts(Checkpoint("org/target", {})))

    result = recommend(asked, ())

    assert "dcp-interleave" in [finding.id for finding in result.traps]


def test_an_architecture_that_the_release_lacks_is_told() -> None:
    there = situation(DENSE)
    lacking = replace(there.vllm, unknown_architectures=frozenset({"DFlashDraftModel"}))

    result = recommend(replace(there, vllm=lacking), ())

    assert [trap.id for trap in result.traps] == ["architecture-not-in-release"]


def test_another_method_than_the_checkpoints_is_told() -> None:
    result = recommend(replace(situation(DENSE), method_of_checkpoint=Method.DSPARK), ())

    assert [trap.id for trap in result.traps] == ["method-of-another-drafter"]


def test_a_speculative_config_in_a_file_is_told_to_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("speculative-config:\n  num_speculative_tokens: 3\n")

    result = recommended(Case("", QWEN, gpu="h200", vllm_args=("--config", str(file))))

    assert [trap.id for trap in result.traps] == ["speculative-config-in-file"]


@pytest.mark.parametrize(
    ("text", "traps", "next_step"),
    [
        ("enable-prefix-caching: false\n", ("false-in-configuration-file",), "no-enable-prefix-caching: true"),
        ("async_scheduling: false\n", ("false-in-configuration-file",), "no-async-scheduling: true"),
        ("no-enable-prefix-caching: true\n", ("prefix-caching-off",), None),
        ("no-enable-prefix-caching: false\nheadless: false\nenforce-eager: false\n", (), None),
        ("enable-prefix-caching: true\n", (), None),
        ("max-model-len: 2048\n", (), None),
    ],
)
def test_a_file_does_what_vllm_makes_of_it(
    tmp_path: Path, text: str, traps: tuple[str, ...], next_step: str | None
) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text(text)

    result = recommended(Case("", QWEN, gpu="h200", vllm_args=("--config", str(file))))

    assert tuple(finding.id for finding in result.traps) == traps
    assert next_step is None or next_step in result.traps[0].advice


def test_an_unknown_release_is_said_to_be_unknown() -> None:
    case = Case("", QWEN, gpu="h200", release=(0, 40))

    result = recommended(case)

    assert {"release", "--max-num-batched-tokens"} <= {check.id for check in result.not_checked}
    assert result.vllm_args == ()
