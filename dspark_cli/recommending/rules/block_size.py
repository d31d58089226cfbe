"""Tokens of a KV block."""

from collections.abc import Iterator

from dspark_cli.findings.finding import Confidence, Finding, NotChecked, Severity
from dspark_cli.recommending.recommendation import Choice
from dspark_cli.recommending.saying import of_vllm
from dspark_cli.recommending.situation import Situation

OPTION = "--block-size"


def rule(situation: Situation) -> Iterator[Choice | Finding | NotChecked]:
    recurrent = situation.target.recurrent
    yield of_vllm(
        OPTION,
        None,
        "vLLM's: it takes the size that the attention backends ask for"
        + (", and one that holds the target's recurrent state" if recurrent else ""),
        "vLLM platforms/interface.py: update_block_size_for_backend",
        Confidence.CERTAIN,
    )
    asked, prefix = situation.options.number(OPTION), situation.workload.shared_prefix
    if asked and prefix and asked > prefix:
        yield Finding(
            "block-longer-than-prefix",
            Severity.WARNING,
            f"blocks of {asked:,} tokens never hold a shared prefix of {prefix:,}: nothing of it is ever hit",
            {"block_size": asked, "shared_prefix": prefix},
            f"leave {OPTION} out, or give one well below the prefix",
            source="vLLM hashes whole blocks",
            confidence=Confidence.CERTAIN,
        )
