"""How the patches of this tool stand on the vLLM that runs here."""

import asyncio
from math import inf

from dspark_cli.status_plugin.asked_once import AskedOnce

PatchStatus = dict[str, str]
"""`name`, `status`, `evidence`."""


def patches_question() -> AskedOnce[list[PatchStatus]]:
    """The source stays as it is while the server runs, so it is read once, beside the event loop."""

    async def put() -> list[PatchStatus]:
        return await asyncio.to_thread(patches_here)

    return AskedOnce(put, keep_s=inf)


def patches_here() -> list[PatchStatus]:
    from dspark_cli.patches.put_on import judged_here
    from dspark_cli.patches.registry import PATCHES

    return [
        {"name": found.patch, "status": str(found.status), "evidence": found.evidence}
        for found in judged_here(list(PATCHES))
    ]


def with_failures(patches: list[PatchStatus], failed: dict[str, str]) -> list[PatchStatus]:
    """What a worker or an engine core could not put on has failed, whatever its source looks like from here."""
    return [
        {**patch, "status": "failed", "evidence": failed[patch["name"]]} if patch["name"] in failed else patch
        for patch in patches
    ]
