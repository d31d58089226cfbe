"""What one engine core counts, how it is configured, and which patches it could not put on."""

from typing import Any

from dspark_cli.status_plugin.engine_configuration import describe_configuration
from dspark_cli.status_plugin.worker_counters import one_line, plain_failures


def describe_engine(engine_core: Any) -> dict[str, Any]:
    """`acceptance`, see `describe_acceptance`, `configuration`, see `describe_configuration`, with the `patches` that
    are on, and `failed_patches`, reasons by name. Plain values; never raises."""
    from dspark_cli.draft_context.acceptance_by_restored import describe_acceptance

    applied, failed = _patches_here()
    return {
        "acceptance": describe_acceptance(engine_core),
        "configuration": {**describe_configuration(engine_core), "patches": applied},
        "failed_patches": failed,
    }


def _patches_here() -> tuple[list[str], dict[str, str]]:
    try:
        from dspark_cli.draft_context.installed import HERE

        return [one_line(name) for name in HERE.applied], plain_failures(HERE.failed)
    except Exception as error:
        return [], plain_failures({"dspark-tool": f"{type(error).__name__}: {error}"})
