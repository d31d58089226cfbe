"""How one engine of a server runs: what vLLM made of what it was asked for."""

from dataclasses import dataclass

Plain = bool | int | float | str | None
Setting = Plain | tuple[Plain, ...] | tuple[tuple[Plain, ...], ...]


@dataclass(frozen=True)
class EngineConfiguration:
    """`speculative` has vLLM's own keys of a speculative configuration. `workers` is how many the engine has, `patches`
    are those of dspark-tool that are on in the engine core itself. `unsupported` says why there is nothing else."""

    speculative: dict[str, Setting] | None = None
    drafter_max_model_len: int | None = None
    prefix_caching: bool | None = None
    block_tokens: int | None = None
    max_model_len: int | None = None
    max_batched_tokens: int | None = None
    max_sequences: int | None = None
    workers: int | None = None
    executor: str | None = None
    model_runner: str | None = None
    patches: tuple[str, ...] = ()
    unsupported: str | None = None
