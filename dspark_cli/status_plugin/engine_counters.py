"""What one engine core counts, and which patches it could not put on."""

from typing import Any

from dspark_cli.status_plugin.worker_counters import plain_failures


def describe_engine(engine_core: Any) -> dict[str, Any]:
    """`acceptance`, see `describe_acceptance`, and `failed_patches`, reasons by name. Plain values; never raises."""
    from dspark_cli.draft_context.acceptance_by_restored import describe_acceptance

    return {"acceptance": describe_acceptance(engine_core), "failed_patches": _failed_here()}


def _failed_here() -> dict[str, str]:
    try:
        from dspark_cli.draft_context.installed import HERE

        return plain_failures(HERE.failed)
    except Exception as error:
        return plain_failures({"dspark-tool": f"{type(error).__name__}: {error}"})
