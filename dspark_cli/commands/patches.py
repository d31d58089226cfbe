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
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Show what says so: file, symbol and references of each patch.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show which fixes for drafters this vLLM has, gets or lacks.

    The sources are read and compared with those that are known; nothing of them is imported or run. What is unknown
    is unsupported. Exit code 1 where a patch failed, or is unsupported and no part of this tool warns of what it
    mends; 0 with --releases, which reads no sources.

    \b
    native       this vLLM has the fix
    applies      fits this vLLM; serve adds it where the runner and the settings need it
    not needed   what it mends cannot happen here
    unsupported  unknown source, or no patch is safe here
    failed       it should apply, and its self-test failed

    \b
    dspark-tool patches
    dspark-tool patches --evidence
    dspark-tool patches --vllm /opt/venv/lib/python3.12/site-packages
    dspark-tool patches --vllm vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl
    dspark-tool patches --releases
    """
    from dspark_cli.patches.matrix import read_matrix, release_table
    from dspark_cli.patches.registry import PATCHES
    from dspark_cli.report.json_document import print_json
    from dspark_cli.report.patches import show_evidence, show_releases, show_verdict

    if releases:
        if vllm is not None or evidence:
            raise BadInput("--releases shows recorded releases, and no source", "leave out --vllm and --evidence")
        table = release_table(read_matrix(), PATCHES)
        if json:
            print_json("patches", table)
        else:
            show_releases(table)
        return
    verdict = _judged(vllm)
    if json:
        print_json("patches", verdict)
    elif evidence:
        show_evidence(verdict)
    else:
        show_verdict(verdict, read_matrix(), _a_start_here() if vllm is None else None)
    if any(is_finding(judgement) for judgement in verdict.judgements):
        raise typer.Exit(ExitCode.FINDINGS)


def is_finding(judgement: "Judgement") -> bool:
    """Whether there is something that no part of this tool would tell."""
    from dspark_cli.patches.patch import Status

    unwarned = judgement.status is Status.UNSUPPORTED and judgement.warned_by is None
    return unwarned or judgement.status is Status.FAILED


def _a_start_here() -> str:
    """What `serve` would add to the installed vLLM where nothing more is asked for, or why it would refuse."""
    from dspark_cli.errors import ToolError
    from dspark_cli.report.patched_runtime import runtime_in_a_line
    from dspark_cli.serving.patched_runtime import Wanted, patched_runtime
    from dspark_cli.sources.vllm_install import find_vllm

    try:
        runtime = patched_runtime(find_vllm(), Wanted(), {})
    except ToolError as error:
        return f"dspark-tool serve refuses to start here: {error.what}; {error.next_step}"
    return f"dspark-tool serve adds here: {runtime_in_a_line(runtime)}"


def _judged(given: str | None) -> "SourceVerdict":
    from dspark_cli.patches.found_vllm import given_vllm, installed_vllm
    from dspark_cli.patches.judge import judge
    from dspark_cli.patches.matrix import read_matrix
    from dspark_cli.patches.registry import PATCHES
    from dspark_cli.sources.vllm_install import find_vllm

    found = installed_vllm(find_vllm()) if given is None else given_vllm(given)
    return judge(found, PATCHES, read_matrix().known_digests())
