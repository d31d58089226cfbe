"""What one worker's draft context counted: how much of what was restored it found valid, hid or zeroed."""

import json
from collections.abc import Mapping
from typing import Any

from dspark_cli.status_plugin.worker_drafting import describe_drafting

COUNTERS = ("admissions", "restored_tokens", "valid_tokens", "hidden_tokens", "zeroed_tokens")
"""As `dspark_kernels.hidden_lengths` counts them; importing that means importing Triton."""
LONGEST_LINE = 500
MOST_ADMISSIONS_TOLD = 16
WAITING = "no draft step yet"
"""What `draft_context.install` says of a context that will come; clients take no reason for that."""
NOT_PATCHED = "this dspark-tool does not patch the draft context"


def describe_draft_context(worker: Any) -> dict[str, Any]:
    """What `sources.status_draft_context.ToldWorker` reads, and beside it `last`, what became of the latest admissions.

    Plain values; never raises, as `describe_worker`.
    """
    try:
        from dspark_cli.draft_context.installed import describe

        return {**_plain(describe(worker)), **describe_drafting(worker)}
    except ModuleNotFoundError:
        return _inactive(worker, NOT_PATCHED)
    except Exception as error:
        return _inactive(worker, f"{type(error).__name__}: {error}")


def described_or_silent(told: dict[str, Any]) -> dict[str, Any]:
    """`told`, or the description of a worker that could not be asked."""
    return told if "policy" in told else _silent(int(told["rank"]), str(told["unsupported"]))


def _plain(told: dict[str, Any]) -> dict[str, Any]:
    reason, witness = told.get("inactive_reason"), told.get("witness")
    return {
        "rank": int(told["rank"]),
        "policy": one_line(told["policy"]),
        "witness": None if witness is None else one_line(witness),
        "active": bool(told["active"]),
        "inactive_reason": None if reason in (None, WAITING) else one_line(reason),
        **{name: int(told.get(name, 0)) for name in COUNTERS},
        "patches": [one_line(name) for name in told.get("patches", ())],
        "failed_patches": plain_failures(told.get("failed_patches", {})),
        "last": json.loads(json.dumps(list(told.get("last", ()))[-MOST_ADMISSIONS_TOLD:], default=str)),
    }


def plain_failures(failed: Mapping[str, str]) -> dict[str, str]:
    """Why patches could not be put on, by name, in printable lines."""
    return {one_line(name): one_line(reason) for name, reason in failed.items()}


def _inactive(worker: Any, reason: str) -> dict[str, Any]:
    return {**_silent(int(getattr(worker, "rank", 0)), reason), **describe_drafting(worker)}


def _silent(rank: int, reason: str) -> dict[str, Any]:
    return {
        "rank": rank,
        "policy": "off",
        "witness": None,
        "active": False,
        "inactive_reason": one_line(reason),
        **dict.fromkeys(COUNTERS, 0),
        "patches": [],
        "failed_patches": {},
        "last": [],
    }


def one_line(text: object) -> str:
    """One printable line: clients refuse others."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:LONGEST_LINE]
