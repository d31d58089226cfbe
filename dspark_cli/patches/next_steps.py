"""What to do about a patch that a vLLM lacks."""

from dspark_cli.patches.matrix import Matrix, releases_with, span
from dspark_cli.patches.patch import Judgement, Status

CHECK_OF = "inspect-cache: "


def next_step(judgement: Judgement, version: str | None, matrix: Matrix) -> str:
    """For one that is unsupported or failed on a vLLM of `version`: who has it, and which command tells whether it
    matters."""
    steps = [_elsewhere(judgement.patch, version, matrix), _told_by(judgement)]
    return "; ".join(step for step in steps if step)


def _elsewhere(patch: str, version: str | None, matrix: Matrix) -> str | None:
    """The releases that have it, or to which `serve` adds it; None where there are none."""
    native = releases_with(matrix, patch, Status.NATIVE)
    having = native or releases_with(matrix, patch, Status.APPLIES)
    release = (version or "").partition("+")[0]
    if not having:
        return None
    if release in having:
        return f"this is not {release} as it was published: --evidence names what differs"
    known = list(matrix.releases)
    since = having == known[known.index(having[0]) :]
    which = f"since {span(matrix, having[:1])}" if since else f"in {span(matrix, having)}"
    upgrade = ": upgrade" if release in known and known.index(release) < known.index(having[0]) else ""
    return f"{'native' if native else 'fits vLLM'} {which}{upgrade}"


def _told_by(judgement: Judgement) -> str:
    if judgement.status is Status.FAILED:
        return f"dspark-tool serve --without {judgement.patch} leaves it out"
    by = judgement.warned_by or ""
    if by.startswith(CHECK_OF):
        check = by.removeprefix(CHECK_OF)
        return f"dspark-tool inspect-cache --model MODEL --draft DRAFT warns where it matters ({check})"
    if by == "serve":
        return "dspark-tool serve refuses to start without it, unless --draft-context off"
    return "nothing in this tool warns of it"
