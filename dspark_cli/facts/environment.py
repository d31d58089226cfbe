"""What is installed here, and which command lacks what."""

from dataclasses import dataclass

from dspark_cli.sources.gpus import Gpu


@dataclass(frozen=True)
class VllmFacts:
    """`platform` and `model_runner` are None where vLLM is installed but fails, and `failure` says how."""

    distribution: str
    version: str
    verified: bool
    platform: str | None
    model_runner: str | None
    failure: str | None


@dataclass(frozen=True)
class Environment:
    """Versions are None where the package is absent."""

    python: str
    torch: str | None
    triton: str | None
    vllm: VllmFacts | None
    gpus: list[Gpu]


@dataclass(frozen=True)
class Readiness:
    """`missing` stops the command and is None where nothing does; `limits` says what it cannot do here."""

    command: str
    missing: str | None
    limits: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    environment: Environment
    commands: list[Readiness]


def readiness(here: Environment) -> list[Readiness]:
    """What each command lacks, in the order of the README."""
    return [
        Readiness("serve", _vllm_missing(here.vllm), _serve_limits(here.vllm)),
        Readiness("tune", _vllm_missing(here.vllm), _serve_limits(here.vllm)),
        Readiness("acceptance", None),
        Readiness("inspect-cache", _vllm_missing(here.vllm), _plan_limits(here.vllm)),
        Readiness("stress-shift", _kernels_missing(here), _race_limits(here)),
    ]


def _vllm_missing(vllm: VllmFacts | None) -> str | None:
    if vllm is None:
        return "vLLM: pip install 'dspark-tool[vllm]', or 'dspark-tool[cpu]' without a GPU"
    if vllm.failure is not None:
        return f"{vllm.distribution} {vllm.version} does not start: {vllm.failure}"
    return None


def _serve_limits(vllm: VllmFacts | None) -> str | None:
    if vllm is not None and vllm.model_runner == "V1":
        return "DFlash only: DSpark needs model runner V2, and this vLLM uses V1 here"
    return None


def _plan_limits(vllm: VllmFacts | None) -> str | None:
    if vllm is not None and vllm.platform is not None:
        return f"plans for this vLLM's platform ({vllm.platform})"
    return None


def _kernels_missing(here: Environment) -> str | None:
    absent = [name for name, version in (("torch", here.torch), ("triton", here.triton)) if version is None]
    return f"{' and '.join(absent)}: pip install 'dspark-tool[kernels]'" if absent else None


def _race_limits(here: Environment) -> str | None:
    return None if here.gpus else "values only: without a GPU, Triton's interpreter cannot show races"
