"""What a running server says of itself: versions, patches, and whether its draft context is looked after."""

from collections.abc import Iterator
from dataclasses import dataclass

from dspark_cli.facts.draft_context import OFF, DraftContext


@dataclass(frozen=True)
class PatchStatus:
    """How a patch of dspark-tool stands on the server's vLLM; `status` is a word of `dspark_cli.patches`."""

    name: str
    status: str
    evidence: str = ""


@dataclass(frozen=True)
class ServerDiagnosis:
    """`vllm` and `dspark_tool` are the versions in the server at `where`. Without `draft_context`, `no_context` says
    why it is not known.

    `patches` is how each stands on the server's vLLM, `put_on` names those that are on in any of its processes; None
    where it does not tell.
    """

    where: str
    vllm: str
    dspark_tool: str
    engines: int
    patches: tuple[PatchStatus, ...]
    draft_context: DraftContext | None
    no_context: str | None
    problems: tuple[str, ...] = ()
    """What was asked for and does not work."""
    put_on: tuple[str, ...] | None = None


def problems_of(patches: tuple[PatchStatus, ...], context: DraftContext | None) -> Iterator[str]:
    for patch in patches:
        if patch.status == "failed":
            yield f"the patch {patch.name} failed: {patch.evidence}"
    if context is None:
        return
    if context.policy != OFF and context.inactive_reasons:
        yield f"the draft context has the policy {context.policy} and is not active"
    if context.differing:
        yield f"{len(context.differing)} ranks of one engine treat restored tokens differently"
