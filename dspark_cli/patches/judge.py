"""How patches stand on one vLLM source tree. What nobody has read is unsupported, never a guess."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from dspark_cli.patches.found_vllm import FoundVllm
from dspark_cli.patches.patch import Judgement, Patch, Reading, SourceVerdict, Status, Symbol
from dspark_cli.patches.source_tree import SourceTree, UnreadableSource

UNREADABLE = "unreadable"
Known = Mapping[str, AbstractSet[str]]
"""By symbol (as text), the digests it has by itself in releases that were read."""


def judge(found: FoundVllm, patches: Sequence[Patch], known: Known | None = None) -> SourceVerdict:
    """Every patch on the source tree, in the order given. Broken or hostile sources are unsupported, not an error.

    known: names the symbols that changed where a joint digest only says that one did.
    """
    judgements = [_judgement(patch, found.tree, known or {}) for patch in patches]
    return SourceVerdict(found.source, found.version, judgements)


def _judgement(patch: Patch, tree: SourceTree, known: Known) -> Judgement:
    try:
        digest = tree.digest(patch.symbols)
        reading = _reading(patch, digest)
        status = Status.UNSUPPORTED if reading is None else reading.status
        evidence = _unknown(patch.symbols, tree, known) if reading is None else reading.evidence
    except UnreadableSource as error:
        digest, status, evidence = UNREADABLE, Status.UNSUPPORTED, str(error)
    return Judgement(patch.name, patch.title, status, evidence, digest, patch.references, patch.warned_by)


def _reading(patch: Patch, digest: str) -> Reading | None:
    return next((reading for reading in patch.readings if digest in reading.digests.values()), None)


def _unknown(symbols: Sequence[Symbol], tree: SourceTree, known: Known) -> str:
    """Which of `symbols` are as in no release that was read, or all where only their being together is new."""
    odd = [symbol for symbol in symbols if tree.digest([symbol]) not in known.get(str(symbol), ())]
    if not odd:
        return f"unknown source: no release that was read has these states together: {', '.join(map(str, symbols))}"
    told = [f"{symbol} ({'absent' if tree.text(symbol) is None else 'unknown state'})" for symbol in odd]
    return f"unknown source: {', '.join(told)}"
