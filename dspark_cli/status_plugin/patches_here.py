"""How the patches of this tool stand on the vLLM that runs here."""

import asyncio
from math import inf
from pathlib import Path

from dspark_cli.status_plugin.asked_once import AskedOnce

PatchStatus = dict[str, str]
"""`name`, `status`, `evidence`."""


def patches_question() -> AskedOnce[list[PatchStatus]]:
    """The source stays as it is while the server runs, so it is read once, beside the event loop."""

    async def put() -> list[PatchStatus]:
        return await asyncio.to_thread(patches_here)

    return AskedOnce(put, keep_s=inf)


def patches_here() -> list[PatchStatus]:
    import vllm

    from dspark_cli.patches.found_vllm import FoundVllm
    from dspark_cli.patches.judge import judge
    from dspark_cli.patches.registry import PATCHES
    from dspark_cli.patches.source_tree import SourceTree

    package = Path(str(vllm.__file__)).parent
    verdict = judge(FoundVllm(str(package), str(vllm.__version__), SourceTree(package)), PATCHES)
    return [
        {"name": found.patch, "status": str(found.status), "evidence": found.evidence} for found in verdict.judgements
    ]


def with_failures(patches: list[PatchStatus], failed: dict[str, str]) -> list[PatchStatus]:
    """What a worker or an engine core could not put on has failed, whatever its source looks like from here."""
    return [
        {**patch, "status": "failed", "evidence": failed[patch["name"]]} if patch["name"] in failed else patch
        for patch in patches
    ]
