"""What this worker has of the patched runtime, for those who ask from outside."""

from dataclasses import dataclass, field
from typing import Any

from dspark_kernels.hidden_lengths import COUNTED

from dspark_cli.draft_context.context import DraftContext
from dspark_cli.draft_context.policy import Policy


@dataclass
class Installed:
    """`inactive` says why there is no context; the context comes with the first draft step, or with graph capture.

    applied: names of the registry's patches that are on in this process. failed: those asked for that are not, and why.
    """

    policy: Policy = Policy.OFF
    inactive: str | None = "not asked for"
    context: DraftContext | None = None
    applied: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


HERE = Installed()
"""Of this process, which has one worker."""


def describe(worker: Any) -> dict[str, Any]:
    """Plain values that survive JSON. Never raises: see `status_plugin.worker_cache.describe_worker`."""
    rank = getattr(worker, "rank", 0)
    plain = {
        "rank": rank if isinstance(rank, int) else 0,
        "policy": str(HERE.policy),
        "witness": "content",
        "active": HERE.context is not None,
        "inactive_reason": HERE.inactive,
        "patches": list(HERE.applied),
        "failed_patches": dict(HERE.failed),
    }
    try:
        return {**plain, **(HERE.context.totals() if HERE.context else dict.fromkeys(COUNTED, 0))}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        return {**plain, "active": False, "inactive_reason": reason}
