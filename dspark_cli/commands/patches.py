"""`dspark-tool patches`: which fixes this vLLM has, which `serve` adds, and which it lacks."""

from typing import TYPE_CHECKING, Annotated

import typer

from dspark_cli.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from dspark_cli.patches.patch import Judgement, SourceVerdict


def patches(
    vllm: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A folder with vLLM's sources, or a .whl file; as a rule the installed one."),
    ] = None,
    releases: Annotated[
        bool, typer.Option("--releases", help="Show how each patch stands on the published releases.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show which fixes for drafters this vLLM has, gets or lacks.

    The sources are read and compared with those that are known; nothing of them is imported or run. What is unknown
    is unsupported. Exit code 1 where a patch failed, or is unsupported and no part of this tool warns of what it
    mends; 0 with --releases, which reads no sources.

    \b
    native       this vLLM has the fix
    applies      dspark-tool serve adds it
    not needed   what it mends cannot happen here
    unsupported  unknown source, or no patch is safe here
    failed       it should apply, and its self-test failed

    \b
    dspark-tool patches
    dspark-tool patches --vllm /opt/venv/lib/python3.12/site-packages
    dspark-tool patches --vllm vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl
    dspark-tool patches --releases
    """
    from dspark_cli.patches.matrix import read_matrix, release_table
    from dspark_cli.patches.registry import PATCHES
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.patches import show_releases, show_verdict

    if releases:
        if vllm is not None:
            raise BadInput("--releases shows recorded releases, and --vllm reads one", "give one of the two")
        table = release_table(read_matrix(), PATCHES)
        if json:
            print_json("patches", table)
        else:
            show_releases(table)
        return
    verdict = _judged(vllm)
    if json:
        print_json("patches", verdict)
    else:
        show_verdict(verdict)
    if any(is_finding(judgement) for judgement in verdict.judgements):
        raise typer.Exit(ExitCode.FINDINGS)


def is_finding(judgement: "Judgement") -> bool:
    """Whether there is something that no part of this tool would tell."""
    from dspark_cli.patches.patch import Status

    unwarned = judgement.status is Status.UNSUPPORTED and judgement.warned_by is None
    return unwarned or judgement.status is Status.FAILED


def _judged(given: str | None) -> "SourceVerdict":
    from dspark_cli.patches.found_vllm import given_vllm, installed_vllm
    from dspark_cli.patches.judge import judge
    from dspark_cli.patches.matrix import read_matrix
    from dspark_cli.patches.registry import PATCHES
    from dspark_cli.sources.vllm_install import find_vllm

    found = installed_vllm(find_vllm()) if given is None else given_vllm(given)
    return judge(found, PATCHES, read_matrix().known_digests())
