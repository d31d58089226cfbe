"""What one worker drafts with: its model runner, its number of tokens, and its draft layers' attention backends."""

from typing import Any

from dspark_cli.status_plugin.worker_cache import draft_layers


def describe_drafting(worker: Any) -> dict[str, Any]:
    """`model_runner`, `draft_tokens`, `draft_layers` and `draft_backends`; what this release does not say is missing.

    Plain values; never raises, as `describe_worker`.
    """
    told: dict[str, Any] = {}
    for name, read in READ.items():
        try:
            told[name] = read(worker)
        except Exception:  # another release, or a worker without a model runner
            continue
    return told


def _model_runner(worker: Any) -> str:
    return "V2" if getattr(worker.vllm_config, "use_v2_model_runner", False) else "V1"


def _draft_tokens(worker: Any) -> int:
    """Of the runner itself, which allocated for so many."""
    runner = worker.model_runner
    names = ("num_speculative_steps", "num_spec_tokens")
    return int(next(getattr(runner, name) for name in names if hasattr(runner, name)))


def _draft_layers(worker: Any) -> int:
    return len(draft_layers(worker.model_runner))


def _draft_backends(worker: Any) -> list[str]:
    layers = worker.vllm_config.compilation_config.static_forward_context
    names = draft_layers(worker.model_runner)
    return sorted({str(layers[name].get_attn_backend().get_name()) for name in names})


READ = {
    "model_runner": _model_runner,
    "draft_tokens": _draft_tokens,
    "draft_layers": _draft_layers,
    "draft_backends": _draft_backends,
}
